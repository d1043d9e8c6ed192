"""SHA256SUMS: every file of a folder with its digest, in the form that `sha256sum -c` reads."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wmlce.release import signature
from wmlce.release.signature import Trust
from wmlce.util.errors import WmlceError
from wmlce.util.files import open_file, sha256_file, write_atomic
from wmlce.util.host import cpu_count

NAME = "SHA256SUMS"
LARGEST = 16 << 20
_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64}) [ *](?P<name>[^\\\n]+)")


def files(folder: Path) -> dict[str, Path]:
    """What belongs into the list: every file but the list itself and signatures, which come after it."""
    return {
        name: path
        for name, path in everything(folder).items()
        if name != NAME and not name.endswith(signature.SUFFIX)
    }


def everything(folder: Path) -> dict[str, Path]:
    """Every file and link below a folder, by its name there; but for what is hidden (a mirror's lock, files
    that are on their way), which no client reads.
    """
    by_name = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        names = [name for name in names if not name.startswith(".")]
        # links to folders are among the folders
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        for name in (*names, *links):
            path = Path(place) / name
            by_name[path.relative_to(folder).as_posix()] = path
    return dict(sorted(by_name.items()))


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _digests(paths: Mapping[str, Path]) -> dict[str, str]:
    with ThreadPoolExecutor(cpu_count()) as pool:
        return dict(zip(paths, pool.map(sha256_file, paths.values()), strict=True))


def write(folder: Path, digests_given: Mapping[str, str] | None = None) -> None:
    """List the folder. known: digests of files that need not be read again."""
    paths = files(folder)
    for name, path in paths.items():
        if not _is_plain(path) or "\n" in name or "\\" in name:
            raise WmlceError(
                f"{path} cannot be in a release: it is a link or a pipe, or its name is no plain one"
            )
    digests = {
        **_digests({k: p for k, p in paths.items() if k not in (digests_given or {})}),
        **(digests_given or {}),
    }
    write_atomic(folder / NAME, "".join(f"{digests[name]}  {name}\n" for name in sorted(paths)))


def require(folder: Path) -> Path:
    """The list of a folder, or an error."""
    path = folder / NAME
    if not path.is_file():
        raise WmlceError(
            f"{folder} has no {NAME}", remedy="name the folder of a release, or the channel of one"
        )
    if path.stat().st_size > LARGEST:
        raise WmlceError(
            f"{path} has more than {LARGEST >> 20} MiB, and is no list of a release",
            remedy="get it again from where it was published",
        )
    return path


def read(folder: Path) -> dict[str, str]:
    """Name -> sha256 of what a folder lists."""
    path = require(folder)
    lines = path.read_text(errors="replace").splitlines()
    listed = {}
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None or ".." in Path(match["name"]).parts or match["name"].startswith("/"):
            raise WmlceError(f"{path}:{number} is not a line of a checksum list", remedy="get the file again")
        listed[match["name"]] = match["sha256"]
    return listed


def signed(folder: Path, trust: Trust | None) -> tuple[str, dict[str, str]]:
    """The fingerprint of the key that signed a folder's list, and the list. Both files are read once: who can
    write to the folder cannot have one checked and another one used. Without `trust` any key will do.
    """
    path = require(folder)
    signature.key_of(path)  # an error names the file
    try:
        with open_file(path) as listed, open_file(signature.signature_of(path)) as proof:
            contents = listed.read(LARGEST), proof.read(signature.LARGEST)
    except OSError as error:
        raise WmlceError(
            f"{error.filename} cannot be read: {error.strerror}", remedy="get it again"
        ) from error
    return verified(*contents, trust, str(folder))


def verified(listed: bytes, proof: bytes, trust: Trust | None, title: str) -> tuple[str, dict[str, str]]:
    """What `signed` tells, of a list and its signature. title: what they are of."""
    with tempfile.TemporaryDirectory(prefix="wmlce-signed-") as scratch:
        path = Path(scratch) / NAME
        path.write_bytes(listed)
        signature.signature_of(path).write_bytes(proof)
        try:
            return signature.verify(path, trust), read(path.parent)
        except WmlceError as error:
            # the user knows the channel, not our copy
            error.message = error.message.replace(scratch, title)
            raise


def differences(
    folder: Path,
    listed: Mapping[str, str],
    *,
    sizes: Mapping[str, int] | None = None,
    concerns: Callable[[str], bool] = lambda name: True,
) -> list[str]:
    """What of a folder is not as listed, a line each. sizes: as far as known. concerns: which files count."""
    present = {name: path for name, path in files(folder).items() if concerns(name)}
    expected = {name: digest for name, digest in listed.items() if concerns(name)}
    plain = {name: path for name, path in present.items() if name in expected and _is_plain(path)}
    cut = {
        name: (path.stat().st_size, sizes[name])
        for name, path in plain.items()
        if sizes is not None and name in sizes and path.stat().st_size < sizes[name]
    }
    digests = _digests({name: path for name, path in plain.items() if name not in cut})
    problems = {name: f"missing: {name}" for name in expected if name not in present}
    problems |= {name: f"not in {NAME}: {name}" for name in present if name not in expected}
    problems |= {
        name: f"a link or a pipe, and no file: {name}"
        for name in present
        if name in expected and name not in plain
    }
    problems |= {name: f"cut off: {name} has {a} of {b} bytes" for name, (a, b) in cut.items()}
    problems |= {name: f"changed: {name}" for name, digest in digests.items() if digest != expected[name]}
    return [problems[name] for name in sorted(problems)]
