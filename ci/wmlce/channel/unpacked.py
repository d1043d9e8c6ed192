"""Unpacked packages, of which environments are made: a cache that programs cannot change by mistake, and
copies that nobody else can change at all.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from wmlce.util.errors import WmlceError
from wmlce.util.files import open_file
from wmlce.util.host import cpu_count
from wmlce.util.scratch import scratch_folder

if TYPE_CHECKING:
    from rattler.repo_data.record import RepoDataRecord

_BLOCK = 1 << 20


@contextmanager
def own_copies(parent: Path, records: Sequence[RepoDataRecord]) -> Iterator[Path]:
    """A cache for unpacked packages that nothing else uses. Until it goes, the records name copies of their
    packages, whose sha256 was compared while they were read.

    Raises:
        WmlceError: A package is not the one that the index has.
    """
    origins = [str(record.url) for record in records]
    with scratch_folder(parent, "packages") as folder:
        folder.chmod(0o700)
        if parent.stat().st_uid == os.geteuid():
            parent.chmod(parent.stat().st_mode & ~0o022)  # nobody else puts another folder in its place
        try:
            with ThreadPoolExecutor(cpu_count()) as pool:
                copies = list(pool.map(lambda record: _own_copy(record, folder), records))
            for record, path in zip(records, copies, strict=True):
                record.url = path.as_uri()
            yield folder / "pkgs"
        finally:
            for record, origin in zip(records, origins, strict=True):
                record.url = origin


def _own_copy(record: RepoDataRecord, folder: Path) -> Path:
    source = Path(unquote(urlsplit(str(record.url)).path))
    target = folder / "channel" / record.subdir / record.file_name
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with open_file(source) as reading, target.open("wb") as writing:
        while block := reading.read(_BLOCK):
            digest.update(block)
            writing.write(block)
    if digest.digest() != record.sha256:
        raise WmlceError(
            f"{source} is not the package that the index has: its sha256 is {digest.hexdigest()}",
            remedy="get it again from where it was published, or build it again: wmlce channel build",
        )
    return target


def forget_copies(content: dict[str, Any], records: Iterable[RepoDataRecord]) -> bool:
    """Have the record of an installed package name the package, and not a copy that is gone."""
    for record in records:
        if record.file_name == content.get("fn") and content.get("url") != str(record.url):
            content["url"] = str(record.url)
            content.pop("extracted_package_dir", None)
            content.pop("link", None)
            return True
    return False


def protect(cache: Path, files: Iterable[str]) -> None:
    """Let no program write into these packages by mistake: environments link to their files."""
    for name in files:
        unpacked = cache / name.removesuffix(".conda")
        last = unpacked / "info/index.json"
        try:
            if not last.stat().st_mode & 0o222:
                continue
        except FileNotFoundError:
            continue
        for folder, _, members in os.walk(unpacked):
            for member in members:
                path = os.path.join(folder, member)
                if path != str(last) and not os.path.islink(path):
                    os.chmod(path, os.lstat(path).st_mode & ~0o222)
        last.chmod(last.stat().st_mode & ~0o222)
