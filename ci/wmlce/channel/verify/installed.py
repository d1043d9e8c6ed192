"""Each file of an environment is the one of its package."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from wmlce.channel import package_files
from wmlce.channel.verify.check import Check
from wmlce.util import conda_meta
from wmlce.util.errors import WmlceError
from wmlce.util.files import sha256_file
from wmlce.util.host import cpu_count

_SHOWN = 5
Record = Mapping[str, Any]


def files(prefix: Path, channel: Path) -> Check:
    """The sha256 of every file is that of its record in conda-meta; and the record is that of the package,
    where the channel has it. What files became that name the environment's place, the record alone tells.
    """
    check = Check("files as in their packages", "")
    prefix = prefix.resolve()
    records = list(_records(prefix, check))
    expected: dict[Path, str] = {}
    owner: dict[Path, str] = {}
    linked: dict[Path, str] = {}
    unknown = []
    for record in records:
        name = str(record["name"])
        entries = {str(item["_path"]): item for item in record["paths_data"]["paths"]}
        package = channel / str(record.get("subdir")) / str(record.get("fn"))
        if package.is_file():
            try:
                check.findings += [f"{name}: {line}" for line in _strange(record, entries, package)]
            except WmlceError as error:
                check.findings.append(f"{name}: {error.message}")
        else:
            unknown.append(name)
        for file, item in entries.items():
            path = prefix / file
            owner[path] = name
            if item.get("path_type") == "softlink":
                linked[path] = str(item.get("sha256") or "")
            elif item.get("path_type") != "directory":
                expected[path] = str(item.get("sha256_in_prefix") or item.get("sha256"))
    folders = {path.parent for path in owner}
    check.findings += [
        f"the folder {folder.relative_to(prefix)} is not in the environment: a link leads elsewhere"
        for folder in sorted(folders)
        if folder.resolve() != folder
    ]
    check.findings += [
        f"{owner[path]}: {line}" for path in owner for line in _of_wrong_kind(path, path in linked, prefix)
    ]
    digests = _digests({*expected, *linked})
    original = {
        prefix / str(item["_path"]): str(item.get("sha256"))
        for record in records
        for item in record["paths_data"]["paths"]
    }
    for path, digest in digests.items():
        recorded = expected.get(path) or linked.get(path)
        leads_to = None
        if path in linked:
            target = path.resolve()
            if owner.get(target, owner[path]) != owner[path]:
                continue  # a file of another package, which is looked at itself
            # a link has the digest of the file to which it leads, as that is in the package
            leads_to = original.get(target)
        if digest is not None and recorded and recorded not in (digest, leads_to):
            check.findings.append(f"{owner[path]}: {path.relative_to(prefix)} was changed")
    check.findings += _lacking(records)
    check.findings.sort()
    check.summary = f"{len(expected)} files, sha256 of each"
    if unknown:
        check.notes.append(
            f"not in this channel, compared with their records alone: {', '.join(sorted(unknown))}"
        )
    if others := sorted(_others(prefix, {str(path.relative_to(prefix)) for path in owner})):
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        check.notes.append(f"files of no package: {', '.join(others[:_SHOWN])}{more}")
    return check


def _records(prefix: Path, check: Check) -> Iterator[Record]:
    """The records of installed packages; those that are none are findings."""
    for path, record in conda_meta.each(prefix):
        if isinstance(record, Exception):
            check.findings.append(f"conda-meta/{path.name} is no record of a package: {record!r}")
        else:
            yield record


def _of_wrong_kind(path: Path, link: bool, prefix: Path) -> Iterator[str]:
    """What is wrong with a file before its content is looked at."""
    file = path.relative_to(prefix)
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        yield f"{file} is missing"
        return
    if stat.S_ISLNK(mode) != link:
        yield f"{file} is {'no' if link else 'a'} link"
    elif link:
        if not path.resolve().is_relative_to(prefix):
            yield f"{file} leads out of the environment, to {os.readlink(path)}"
        elif not path.exists():
            yield f"{file} leads to {os.readlink(path)}, which is not there"
    elif not stat.S_ISREG(mode):
        yield f"{file} is no file"
    elif mode & (stat.S_ISUID | stat.S_ISGID):
        yield f"{file} runs with the rights of its owner or group"


def _lacking(records: list[Record]) -> list[str]:
    """Packages that others need, and of which there is no record."""
    if not records:
        return ["there is no record of any package in conda-meta"]
    names = {str(record["name"]) for record in records}
    return [
        f"{record['name']}: it needs {need}, of which there is no record"
        for record in records
        for need in sorted({str(spec).split()[0] for spec in record.get("depends") or ()})
        if not need.startswith("__") and need not in names
    ]


def _strange(record: Record, entries: Mapping[str, Record], package: Path) -> Iterator[str]:
    """How the record of an installed package differs from the package."""
    site = str(record.get("python_site_packages_path") or "")
    for item in package_files.entries(package, "comparing what is installed with it"):
        file = str(item.relative_path)
        places = [file, file.replace("python-scripts/", "bin/", 1)]
        if file.startswith("site-packages/"):
            places = [f"{site}/{file[14:]}"] if site else [name for name in entries if name.endswith(file)]
        entry = next((entries[place] for place in places if place in entries), None)
        if entry is None:
            yield f"{file} is not in its record"
            continue
        sha256 = item.sha256.hex() if item.sha256 else None
        if entry.get("sha256") != sha256:
            yield f"{file} has another sha256 in its record"
        elif (
            item.prefix_placeholder is None
            and item.path_type.hardlink
            and entry.get("sha256_in_prefix") not in (None, sha256)
        ):
            yield f"{file} names no place, and its record has it changed"


def _others(prefix: Path, listed: set[str]) -> Iterator[str]:
    """Files and linked folders that no package lists, but for what Python compiles, and conda's records."""
    for folder, folders, names in os.walk(prefix):
        folders[:] = [name for name in folders if name not in ("__pycache__", "conda-meta")]
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in [*names, *links]:
            file = os.path.relpath(os.path.join(folder, name), prefix)
            if file not in listed and file != "CACHEDIR.TAG":  # which says that no backup is needed
                yield file


def _digests(files: Iterable[Path]) -> dict[Path, str | None]:
    """The digests of files, on all cores; None for what is no file, or is not there."""

    def digest(path: Path) -> str | None:
        return sha256_file(path) if path.is_file() else None

    every = list(files)
    with ThreadPoolExecutor(cpu_count()) as pool:
        return dict(zip(every, pool.map(digest, every, chunksize=64), strict=True))
