"""Locked sources: what recipes/sources.lock.yaml and wheels.lock.yaml promise, and getting exactly that.

A fetched file lives in the cache under its sha256, and enters it only after its content was checked.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wmlce.sources import apt, pypi
from wmlce.sources.model import LockedArtifact, LockedSource
from wmlce.util.errors import WmlceError
from wmlce.util.files import link_or_copy, sha256_file, store_atomic
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock

Say = Callable[[str], None]


class SourceLock:
    """All locked files by name."""

    def __init__(self, layout: Layout, entries: Iterable[LockedSource]) -> None:
        self.layout = layout
        self.entries = list(entries)
        self.by_file: dict[str, LockedArtifact] = {}
        for entry in self.entries:
            for file in entry.files:
                other = self.by_file.setdefault(file.name, LockedArtifact(entry, file))
                if other.file.sha256 != file.sha256:
                    raise WmlceError(
                        f"{file.name} is locked twice with different sha256 ({other.recipes()}; "
                        f"{', '.join(entry.recipes)})",
                        remedy="remove one of the two entries from the lock files in recipes/",
                    )

    def wanted(self, name: str, recipe: str) -> LockedArtifact:
        """The locked file `name`, or an error that names the recipe that asks for it."""
        found = self.by_file.get(name)
        if found is None:
            raise WmlceError(
                f"recipe '{recipe}' uses build/sources/{name}, which no lock file lists",
                remedy="add it to recipes/sources.lock.yaml: wmlce lock sources --add KIND:PACKAGE --recipe "
                f"{recipe}",
                recipe=recipe,
            )
        return found

    def cached(self, wanted: LockedArtifact) -> Path:
        return self.layout.cached_sources / wanted.file.sha256 / wanted.file.name

    def present(self, wanted: LockedArtifact) -> bool:
        return self.cached(wanted).is_file()

    def checked(self, wanted: LockedArtifact) -> Path:
        """The cached file, its content checked again: a cache can rot, or be edited."""
        path = self.cached(wanted)
        if not path.is_file() or sha256_file(path) != wanted.file.sha256:
            path.unlink(missing_ok=True)
            raise WmlceError(
                f"the cached source {wanted.file.name} of recipe '{wanted.recipes()}' was damaged",
                remedy="it is removed: run the command again, and it will be fetched anew",
                recipe=wanted.entry.recipes[0],
            )
        return path

    def fetch(self, wanted: Iterable[LockedArtifact], say: Say) -> list[LockedArtifact]:
        """Bring the files into the cache; returns those that were not there before.

        One apt-get for all Debian packages and two pip processes at a time, side by side.
        """
        missing = [item for item in wanted if not self.present(item)]
        if not missing:
            return []
        with file_lock(self.layout.locks / "sources.lock", "fetching sources", say=say):
            todo = [item for item in missing if not self.present(item)]
            todo = [item for item in todo if not self._from_folder(item)]
            if todo:
                self._fetch_kinds(todo, say)
        return missing

    def place(self, wanted: Iterable[LockedArtifact]) -> None:
        """Show the cached files under build/sources, where a recipe built by hand with another tool finds
        them.
        """
        for item in wanted:
            target = self.layout.sources / item.file.name
            source = self.cached(item)
            if not (target.is_file() and target.stat().st_size == source.stat().st_size):
                link_or_copy(source, target)

    def _from_folder(self, item: LockedArtifact) -> bool:
        """$WMLCE_SOURCES: a folder of files carried to a machine without a network."""
        folder = os.environ.get("WMLCE_SOURCES")
        if not folder:
            return False
        path = Path(folder) / item.file.name
        if not path.is_file():
            return False
        with tempfile.TemporaryDirectory(prefix="wmlce-", dir=self._scratch()) as scratch:
            copy = Path(scratch) / item.file.name
            shutil.copyfile(path, copy)
            self.accept(item, copy, str(path))
        return True

    def _scratch(self) -> Path:
        scratch = self.layout.cached_sources
        scratch.mkdir(parents=True, exist_ok=True)
        return scratch

    def accept(self, item: LockedArtifact, path: Path, origin: str) -> None:
        """Check a fetched file and store it; a wrong hash is an error, and the file is not kept."""
        found = sha256_file(path)
        if found != item.file.sha256:
            raise WmlceError(
                f"wrong sha256 for {item.file.name} of recipe '{item.recipes()}' (from {origin})",
                detail=[f"locked: {item.file.sha256}", f"found:  {found}"],
                remedy="do not build from it; if the archive replaced the file on purpose, lock it anew: "
                + (
                    "wmlce lock sources"
                    if item.entry.kind != "pypi"
                    else "wmlce lock sources or wmlce lock wheels"
                ),
                recipe=item.entry.recipes[0],
            )
        store_atomic(path, self.cached(item))

    def _fetch_kinds(self, todo: Sequence[LockedArtifact], say: Say) -> None:
        debian = [item for item in todo if item.entry.kind != "pypi"]
        python = [item for item in todo if item.entry.kind == "pypi"]
        lock = threading.Lock()

        def told(text: str) -> None:
            with lock:
                say(text)

        with (
            tempfile.TemporaryDirectory(prefix="fetch-", dir=self._scratch()) as scratch,
            ThreadPoolExecutor(max_workers=3) as pool,
        ):
            jobs = []
            if debian:
                folder = Path(scratch) / "debian"
                jobs.append(pool.submit(apt.fetch, self.layout, debian, folder, told, self.accept))
            # the largest artifacts decide the time, so they are spread first
            shares = [share for share in (python[0::2], python[1::2]) if share]
            for number, share in enumerate(shares):
                jobs.append(
                    pool.submit(
                        pypi.fetch, share, Path(scratch) / f"pypi{number}", told, self.accept, self.present
                    )
                )
            errors = [error for job in jobs if (error := job.exception()) is not None]
        if errors:
            raise errors[0]
