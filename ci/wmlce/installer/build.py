"""Makes the single-file installer: a shell script, a gzipped Python that installs, and the packages as the
channel has them, one after the other.

An installer is whole or as it was before, and is made again only when something in it changes: what that is
stands beside it in FILE.json.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO

from rattler.repo_data.record import RepoDataRecord

from wmlce.channel import published
from wmlce.envs import environments
from wmlce.installer import bootstrap, contents
from wmlce.recipes.licenses import refuse_proprietary
from wmlce.util import platform
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, scratch_beside, sha256_file, write_json
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock

_FORMAT = 1
"""Part of the content hash: another number where the same packages would give another file."""
_NO_CHANNEL = "https://ibm-wml-ce.invalid"
"""Channel in the records of an environment where none is named; .invalid is never anybody's host."""
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!-]*\.conda")
_CHANNEL = re.compile(r"(https?|file)://[A-Za-z0-9._~:/@%+-]+")
_SHIPPED = ("on_target.py", "activate.sh")
_TEMPLATE = "installer.sh"
_NO_SHA256 = "0" * 64
_CHUNK = 1 << 22
_SLACK = 1.03
"""Folders, links and the file system's own blocks."""


@dataclass(frozen=True)
class Request:
    """output: the file to make. source: the channel to take packages from. channel: the address that the
    records of the installed environment name. proprietary: may it hold packages that must not be passed on?
    """

    output: Path
    specs: list[str]
    source: Path
    channel: str | None = None
    proprietary: bool = False


@dataclass(frozen=True)
class Package:
    """A package in the file."""

    name: str
    version: str
    build: str
    subdir: str
    file: str
    size: int
    sha256: str
    license: str


@dataclass(frozen=True)
class Content:
    """Everything that decides what an installer is."""

    release: str
    specs: list[str]
    channel: str
    library: str
    texts: dict[str, str]
    bootstrap: list[Package]
    packages: list[Package]

    @property
    def hash(self) -> str:
        value = {"format": _FORMAT, **asdict(self)}
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def default_output(layout: Layout) -> Path:
    machine = platform.of_this_machine()
    return layout.build / "installers" / f"ibm-wml-ce-{_release(layout)}-{machine.subdir}.sh"


def record_of(output: Path) -> Path:
    return output.with_name(f"{output.name}.json")


def read_record(output: Path) -> dict[str, Any] | None:
    """What the installer was made of; None where that is not known, or not of this file."""
    try:
        record = json.loads(record_of(output).read_text())
        return record if record["size"] == output.stat().st_size else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def build(layout: Layout, request: Request, *, say: Callable[[str], None]) -> bool:
    """Make the installer; False when it is there with the same content."""
    _check(layout, request)
    lock = hashlib.sha256(str(request.output).encode()).hexdigest()[:16]
    with (
        disk_errors(f"making {request.output}"),
        file_lock(layout.build / "locks" / f"installer-{lock}.lock", f"making {request.output}", say=say),
    ):
        records = environments.solve_channel(request.source, request.specs, layout)
        if not request.proprietary:
            refuse_proprietary(records, f"the installer {request.output.name}")
        python = environments.solve_channel(request.source, bootstrap.SPECS, layout)
        content = _content(layout, request, records, python)
        record = read_record(request.output)
        if record is not None and record.get("content") == content.hash:
            return False
        started = time.monotonic()
        say(f"making {request.output.name} of {len(records)} packages")
        with scratch_beside(request.output) as scratch:
            _make(layout, request, content, records, python, scratch, say)
        size = request.output.stat().st_size / 1e6
        say(f"{layout.display(request.output)}: {size:.0f} MB in {time.monotonic() - started:.0f} s")
    return True


def _release(layout: Layout) -> str:
    text = (layout.root / "VERSION").read_text().strip()
    if not _VERSION.fullmatch(text):
        raise WmlceError(f"VERSION holds {text!r}, which is not a version", remedy="correct the file VERSION")
    return text


def _check(layout: Layout, request: Request) -> None:
    if request.output.is_dir():
        raise WmlceError(f"{request.output} is a folder", remedy="name a file with --output")
    if request.channel is not None and not _CHANNEL.fullmatch(request.channel):
        raise WmlceError(
            f"{request.channel} is not a channel address", remedy="name one like file:///sw/channel"
        )
    published.require(layout, request.source)


def _content(
    layout: Layout, request: Request, records: Sequence[RepoDataRecord], python: Sequence[RepoDataRecord]
) -> Content:
    package_files = files("wmlce.installer")
    return Content(
        release=_release(layout),
        specs=request.specs,
        channel=(request.channel or _NO_CHANNEL).rstrip("/"),
        library=bootstrap.library_version(),
        texts={name: (package_files / name).read_text() for name in (*_SHIPPED, _TEMPLATE)},
        bootstrap=[_package(record) for record in python],
        packages=sorted(map(_package, records), key=lambda package: package.name),
    )


def _package(record: RepoDataRecord) -> Package:
    if record.sha256 is None or record.size is None:
        raise WmlceError(
            f"the channel's index has no sha256 and size of {record.file_name}",
            remedy="rebuild the channel's index: wmlce channel index",
        )
    if record.subdir not in platform.SUBDIRS or not _FILE.fullmatch(record.file_name):
        raise WmlceError(
            f"{record.subdir}/{record.file_name} is not a package that an installer can hold",
            remedy=f"use a channel of .conda files in {', '.join(platform.SUBDIRS)}",
        )
    return Package(
        name=record.name.normalized,
        version=str(record.version),
        build=str(record.build),
        subdir=record.subdir,
        file=record.file_name,
        size=record.size,
        sha256=record.sha256.hex(),
        license=" ".join((record.license or "unknown").split()),
    )


def _make(
    layout: Layout,
    request: Request,
    content: Content,
    records: list[RepoDataRecord],
    python: list[RepoDataRecord],
    scratch: Path,
    say: Callable[[str], None],
) -> None:
    places = {item.file: request.source / item.subdir / item.file for item in content.packages}
    needs = contents.measure((record, places[record.file_name]) for record in records)
    first = scratch / "bootstrap.tar.gz"
    index = bootstrap.index(
        f"ibm-wml-ce {content.release}",
        content.channel,
        content.specs,
        [{"file": item.file, "subdir": item.subdir, "size": item.size} for item in content.packages],
    )
    texts = {name: content.texts[name] for name in _SHIPPED} | {"index.json": index}
    bootstrap.write(layout, first, python, texts | _repodata(request.source, content), scratch)
    glibc = max(contents.glibc([*records, *python]), bootstrap.library_glibc())
    text = _text(content, needs, str(glibc), first.stat().st_size, _unpacked(first))
    finished = scratch / request.output.name
    say(f"writing {len(content.packages)} packages")
    _write(finished, text, first, content, places)
    record = {
        "release": content.release,
        "specs": content.specs,
        "channel": content.channel,
        "glibc": str(glibc),
        "prefix_limit": needs.prefix_limit,
        "installed": needs.installed,
        "files": needs.files,
        "packages": [asdict(package) for package in content.packages],
        "bootstrap": {
            "packages": [asdict(package) for package in content.bootstrap],
            "py-rattler": content.library,
        },
        "content": content.hash,
        "size": finished.stat().st_size,
        "sha256": sha256_file(finished),
    }
    finished.chmod(0o755)
    # the installer first: a record without its installer would only say that there is one
    os.replace(finished, request.output)
    write_json(record_of(request.output), record)


def _repodata(source: Path, content: Content) -> dict[str, str]:
    """The index of the packages in the file, by name in the bootstrap."""
    entries = published.repodata(source)
    by_subdir: dict[str, dict[str, Any]] = {}
    for package in content.packages:
        by_subdir.setdefault(package.subdir, {})[package.file] = entries[package.subdir][package.file]
    return {
        f"channel/{subdir}/repodata.json": json.dumps(
            {"info": {"subdir": subdir}, "packages": {}, "packages.conda": packages, "repodata_version": 1},
            sort_keys=True,
        )
        for subdir, packages in by_subdir.items()
    }


def _text(
    content: Content, needs: contents.Needs, glibc: str, bootstrap_size: int, bootstrap_unpacked: int
) -> str:
    """The shell's part of the file, with zeros for its checksum."""
    machine = platform.of_this_machine()
    packed = sum(package.size for package in content.packages)
    disk = int((needs.installed + bootstrap_unpacked + packed) * _SLACK)
    values = {
        "SHA256": _NO_SHA256,
        "VERSION": content.release,
        "BOOTSTRAP_SIZE": str(bootstrap_size),
        "PACKAGES": str(len(content.packages)),
        "DISK_KIB": str(disk // 1024 + 1),
        "PREFIX_LIMIT": str(needs.prefix_limit),
        "GLIBC": glibc,
        "PLATFORM": machine.subdir,
        "MACHINE": machine.machine,
        "SPOKEN": machine.spoken,
        "LIST": _list(content.packages),
    }
    text = content.texts[_TEMPLATE]
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    # its own length is in it, too
    size = len(text)
    while True:
        filled = _sized(text, size, size + bootstrap_size + packed)
        if len(filled.encode()) == size:
            return filled
        size = len(filled.encode())


def _sized(text: str, text_size: int, file_size: int) -> str:
    return text.replace("@TEXT_SIZE@", str(text_size)).replace("@FILE_SIZE@", str(file_size))


def _list(packages: Sequence[Package]) -> str:
    """The table that --list shows."""
    rows = [("package", "version", "build", "MB", "licence")]
    rows += [(p.name, p.version, p.build, f"{p.size / 1e6:.1f}", p.license) for p in packages]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = []
    for *cells, size, license_ in rows:
        columns = "  ".join(f"{word:<{width}}" for word, width in zip(cells, widths, strict=False))
        lines.append(f"{columns}  {size:>{widths[3]}}  {license_}")
    return "\n".join(lines)


def _unpacked(archive: Path) -> int:
    """Bytes of the files in a gzipped archive: its last four bytes tell them."""
    with archive.open("rb") as stream:
        stream.seek(-4, os.SEEK_END)
        return int.from_bytes(stream.read(4), "little")


def _write(target: Path, text: str, first: Path, content: Content, places: Mapping[str, Path]) -> None:
    """The file, in which the second line is the checksum of all that follows it."""
    head, mark, rest = text.partition(f"sha256={_NO_SHA256}\n")
    if not mark or head.count("\n") != 1:
        raise AssertionError("the template's second line is its checksum")
    digest = hashlib.sha256(rest.encode())
    with target.open("xb") as stream:
        stream.write(text.encode())
        _append(stream, first, digest, None)
        for package in content.packages:
            _append(stream, places[package.file], digest, package.sha256)
        stream.seek(len(head) + len("sha256="))
        stream.write(digest.hexdigest().encode())
        stream.flush()
        os.fsync(stream.fileno())


def _append(target: BinaryIO, source: Path, digest: hashlib._Hash, sha256: str | None) -> None:
    """Add a file to the installer and to its checksum; its own has to be `sha256` where that is known."""
    checksum = hashlib.sha256()
    with source.open("rb") as stream:
        while data := stream.read(_CHUNK):
            checksum.update(data)
            digest.update(data)
            target.write(data)
    if sha256 is not None and checksum.hexdigest() != sha256:
        raise WmlceError(
            f"{source} is not the file that the channel's index names",
            detail=[f"sha256 {checksum.hexdigest()}, in the index {sha256}"],
            remedy="build the package again, or rebuild the channel's index: wmlce channel index",
        )
