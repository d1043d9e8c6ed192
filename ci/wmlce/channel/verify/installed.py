"""Each file of an environment is the one of its package."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wmlce.channel import package_files
from wmlce.channel.unpacked import sha256_of_all
from wmlce.channel.verify.check import Check
from wmlce.channel.verify.index import conda_meta

_SHOWN = 5


def files(prefix: Path, channel: Path) -> Check:
    """The sha256 of every file is that of its record in conda-meta; and the record is that of the package,
    where the channel has it. What files became that name the environment's place, the record alone tells.
    """
    check = Check("files as in their packages", "")
    expected: dict[Path, str] = {}
    listed: set[str] = set()
    owner: dict[Path, str] = {}
    unknown = []
    for record in conda_meta(prefix):
        name = str(record["name"])
        entries = {str(item["_path"]): item for item in record.get("paths_data", {}).get("paths", [])}
        package = channel / str(record.get("subdir")) / str(record.get("fn"))
        if package.is_file():
            check.findings += [f"{name}: {line}" for line in _strange(record, entries, package)]
        else:
            unknown.append(name)
        for file, item in entries.items():
            listed.add(file)
            path = prefix / file
            link = item.get("path_type") == "softlink"
            if link != path.is_symlink() and path.exists():
                check.findings.append(f"{name}: {file} is {'no' if link else 'a'} link")
            elif not os.path.lexists(path):
                check.findings.append(f"{name}: {file} is missing")
            elif not link and (digest := item.get("sha256_in_prefix") or item.get("sha256")):
                expected[path], owner[path] = str(digest), name
    for path, digest in sha256_of_all(expected).items():
        if digest != expected[path]:
            check.findings.append(f"{owner[path]}: {path.relative_to(prefix)} was changed")
    check.findings.sort()
    check.summary = f"{len(expected)} files, sha256 of each"
    if unknown:
        check.notes.append(
            f"not in this channel, compared with their records alone: {', '.join(sorted(unknown))}"
        )
    if others := sorted(_others(prefix, listed)):
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        check.notes.append(f"files of no package: {', '.join(others[:_SHOWN])}{more}")
    return check


def _strange(
    record: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]], package: Path
) -> Iterator[str]:
    """How the record of an installed package differs from the package."""
    if record.get("sha256") is None:
        yield "its record names no sha256"
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
    """Files that no package lists, but for what Python compiles and wmlce and conda write."""
    for folder, folders, names in os.walk(prefix):
        folders[:] = [name for name in folders if name not in ("__pycache__", "conda-meta")]
        for name in names:
            file = os.path.relpath(os.path.join(folder, name), prefix)
            if file not in listed and file != "CACHEDIR.TAG":  # which says that no backup is needed
                yield file
