"""The first part of an installer: a Python that runs in any folder, with py-rattler, which installs the rest.

A gzipped tar archive, as every Linux system unpacks it. The same packages always give the same bytes.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from packaging.version import Version
from rattler.repo_data.record import RepoDataRecord

from wmlce.envs import environments
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

SPECS = ("python",)
_LIBRARY = "py-rattler"
# what the Python believes to be its prefix: no path of the machine that builds
_NOWHERE = Path("/ibm-wml-ce-installer")
# the certificates are for py-rattler's client, which wants some before it has anything to fetch
_TAKEN = ("bin/python3", "bin/python3.[0-9]*", "lib/*.so*", "lib/python3*", "ssl/cacert.pem")
_LEFT_OUT = (
    "bin/*-config",
    "lib/python3*/__pycache__/*",
    "lib/python3*/config-3*",
    "lib/python3*/distutils/*",
    "lib/python3*/ensurepip/*",
    "lib/python3*/lib2to3/*",
    "lib/python3*/pydoc_data/*",
    "lib/python3*/site-packages/*",
    "lib/python3*/test/*",
    "lib/python3*/unittest/*",
)


def library_version() -> str:
    """The files of py-rattler: the installer gets the one that this tool runs with."""
    return importlib.metadata.version(_LIBRARY)


def library_glibc() -> Version:
    """The oldest glibc that py-rattler runs on."""
    return max((_glibc(path) for path in _library_files().values()), default=Version("0"))


def _library_files() -> dict[str, Path]:
    """Name below site-packages, and file."""
    distribution = importlib.metadata.distribution(_LIBRARY)
    paths = {str(file): Path(str(file.locate())) for file in distribution.files or []}
    selected = {name: path for name, path in paths.items() if "__pycache__" not in name and ".." not in name}
    if not any(name.endswith(".so") for name in selected):
        raise WmlceError(
            f"the tool's own {_LIBRARY} is not installed from its wheel",
            remedy="recreate the tool environment: remove build/tools and run ci/quickstart",
        )
    return selected


def _glibc(path: Path) -> Version:
    """The highest version of glibc that an ELF file asks for; 0 for other files."""
    versions = [Version("0")]
    with path.open("rb") as stream:
        if stream.read(4) == b"\x7fELF":
            stream.seek(0)
            for section in ELFFile(stream).iter_sections():
                if not isinstance(section, GNUVerNeedSection):
                    continue
                for _, needs in section.iter_versions():
                    names = [need.name for need in needs if need.name.startswith("GLIBC_2")]
                    versions += [Version(name.removeprefix("GLIBC_")) for name in names]
    return max(versions)


def write(
    layout: Layout,
    target: Path,
    records: list[RepoDataRecord],
    texts: Mapping[str, str],
    scratch: Path,
) -> None:
    """Make the archive `target` of the packages `records`, of py-rattler and of the files `texts`."""
    prefix = scratch / "bootstrap"
    environments.install_packages(layout, prefix, records, SPECS, final=_NOWHERE)
    site = next((prefix / "lib").glob("python3.*"), None)
    if site is None:
        raise WmlceError("the channel's python has no lib/python3.*", remedy="fix recipes/python")
    files = dict(_wanted(prefix))
    files |= {f"lib/{site.name}/site-packages/{name}": path for name, path in _library_files().items()}
    with (
        target.open("xb") as stream,
        gzip.GzipFile(fileobj=stream, mode="wb", filename="", mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name, path in sorted(files.items()):
            _add(archive, name, path)
        for name, text in sorted(texts.items()):
            data = text.encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def _wanted(prefix: Path) -> Iterator[tuple[str, Path]]:
    for path in prefix.rglob("*"):
        name = str(path.relative_to(prefix))
        if path.is_dir() and not path.is_symlink():
            continue
        if any(fnmatchcase(name, pattern) for pattern in _TAKEN) and not any(
            fnmatchcase(name, pattern) for pattern in _LEFT_OUT
        ):
            yield name, path


def _add(archive: tarfile.TarFile, name: str, path: Path) -> None:
    """Without times and owners, which differ from one build to the next."""
    member = archive.gettarinfo(path, name)
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.mode & 0o100 else 0o644
    if member.islnk():  # another name of a file that is in the archive already
        member.type, member.size = tarfile.REGTYPE, path.stat().st_size
    if member.isreg():
        with path.open("rb") as content:
            archive.addfile(member, content)
    else:
        archive.addfile(member)


def index(name: str, channel: str, specs: Sequence[str], packages: Sequence[Mapping[str, Any]]) -> str:
    """What the program on the target reads: which packages follow in the installer, in their order."""
    return json.dumps(
        {"name": name, "channel": channel, "specs": list(specs), "packages": list(packages)}, sort_keys=True
    )
