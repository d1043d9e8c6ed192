"""The cache of unpacked packages: what is linked from it is what the packages hold."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import zstandard

from wmlce.util.files import remove_tree, sha256_file
from wmlce.util.host import cpu_count


def _info_files(package: Path) -> Iterator[tuple[str, bytes]]:
    """What a .conda file says of itself: name below info/ and content."""
    with zipfile.ZipFile(package) as archive:
        [name] = [name for name in archive.namelist() if name.startswith("info-")]
        data = archive.read(name)
    with (
        zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)) as stream,
        tarfile.open(fileobj=stream, mode="r|") as members,
    ):
        for member in members:
            if (content := members.extractfile(member)) is not None:
                yield member.name, content.read()


def sha256_of_all(files: Iterable[Path]) -> dict[Path, str | None]:
    """The digests of files, on all cores; None for one that is not there."""

    def digest(path: Path) -> str | None:
        try:
            return sha256_file(path)
        except FileNotFoundError:
            return None

    every = list(files)
    with ThreadPoolExecutor(cpu_count()) as pool:
        return dict(zip(every, pool.map(digest, every, chunksize=64), strict=True))


def difference(unpacked: Path, package: Path) -> str | None:
    """The first file in which an unpacked package differs from its .conda file."""
    listed: list[dict[str, Any]] = []
    for name, content in _info_files(package):
        path = unpacked / name
        if path.is_symlink() or not path.is_file() or path.read_bytes() != content:
            return name
        if name == "info/paths.json":
            listed = json.loads(content)["paths"]
    files = {}
    for item in listed:
        path = unpacked / item["_path"]
        link = item.get("path_type") == "softlink"
        if path.is_symlink() != link or not path.resolve().is_relative_to(unpacked.resolve()):
            return str(item["_path"])
        if not link and item.get("path_type") != "directory":
            files[path] = item["sha256"]
    digests = sha256_of_all(files)
    wrong = [path for path, digest in digests.items() if digest != files[path]]
    return str(wrong[0].relative_to(unpacked)) if wrong else None


def remove_changed(cache: Path, packages: Iterable[Path]) -> list[str]:
    """Take packages out of the cache that differ from their .conda files; an installation unpacks them anew.

    Returns: For each, its name and the first file in which it differs.
    """
    removed = []
    for package in packages:
        unpacked = cache / package.name.removesuffix(".conda")
        if unpacked.is_dir() and (file := difference(unpacked, package)) is not None:
            remove_tree(unpacked)
            unpacked.with_name(f"{unpacked.name}.lock").unlink(missing_ok=True)
            removed.append(f"{unpacked.name}: {file}")
    return removed


def protect(cache: Path, names: Iterable[str]) -> None:
    """Let no program write into these packages by mistake: environments link to their files."""
    for name in names:
        last = cache / name / "info/index.json"
        try:
            if not last.stat().st_mode & 0o222:
                continue
        except FileNotFoundError:
            continue
        for folder, _, files in os.walk(cache / name):
            for file in files:
                path = os.path.join(folder, file)
                if path != str(last) and not os.path.islink(path):
                    os.chmod(path, os.lstat(path).st_mode & ~0o222)
        last.chmod(last.stat().st_mode & ~0o222)
