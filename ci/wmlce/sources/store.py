"""Locked sources: what the lock files in recipes/ promise, and getting exactly that.

A fetched file lives in the cache under its sha256, and enters it only after its content was checked.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from wmlce.sources import debian, drift, pypi
from wmlce.sources.model import LockedArtifact, LockedFile, LockedSource
from wmlce.sources.settings import Settings
from wmlce.sources.suite import find_mirror
from wmlce.sources.unavailable import Missing, missing_error
from wmlce.util.errors import WmlceError
from wmlce.util.files import link_or_copy, sha256_file, store_atomic
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock

Say = Callable[[str], None]


class SourceLock:
    """All locked files by name; where Debian has moved on since, what this clone takes instead."""

    def __init__(
        self, layout: Layout, entries: Iterable[LockedSource], settings: Settings | None = None
    ) -> None:
        self.layout = layout
        self.entries = list(entries)
        self.settings = settings or Settings.from_environment()
        stand_ins = drift.in_use(layout)
        self.by_file: dict[str, LockedArtifact] = {}
        for entry in self.entries:
            for item in drift.artifacts(entry, stand_ins):
                other = self.by_file.setdefault(item.file.name, item)
                if other.file.sha256 != item.file.sha256:
                    raise WmlceError(
                        f"{item.file.name} is locked twice with different sha256 ({other.recipes()}; "
                        f"{', '.join(entry.recipes)})",
                        remedy="remove one of the two entries from the lock files in recipes/",
                    )

    def stand_ins(self) -> list[str]:
        """A line for each package of which another revision than the locked one is used."""
        return drift.notes(self.by_file.values())

    def require(self, name: str, recipe: str) -> LockedArtifact:
        """The locked file `name`, or an error that names the recipe that asks for it."""
        artifact = self.by_file.get(name)
        if artifact is None:
            raise WmlceError(
                f"recipe '{recipe}' uses build/sources/{name}, which no lock file lists",
                remedy="add it to recipes/sources.lock.yaml: wmlce lock sources --add KIND:PACKAGE --recipe "
                f"{recipe}",
                recipe=recipe,
            )
        return artifact

    def cached(self, artifact: LockedArtifact) -> Path:
        return self.layout.cached_sources / artifact.file.sha256 / artifact.file.name

    def present(self, artifact: LockedArtifact) -> bool:
        return self.cached(artifact).is_file()

    def checked(self, artifact: LockedArtifact) -> Path:
        """The cached file, its content checked again: a cache can rot, or be edited."""
        path = self.cached(artifact)
        if not path.is_file() or sha256_file(path) != artifact.file.sha256:
            path.unlink(missing_ok=True)
            raise WmlceError(
                f"the cached source {artifact.file.name} of recipe '{artifact.recipes()}' was damaged",
                remedy="it is removed: run the command again, and it will be fetched again",
                recipe=artifact.entry.recipes[0],
            )
        return path

    def fetch(
        self, artifacts: Iterable[LockedArtifact], say: Say, *, exact: bool = False
    ) -> list[LockedArtifact]:
        """Bring the files into the cache; returns those that were not there before.

        One client for all Debian packages and two processes with pip's session, side by side. Where
        Debian has moved on, its present revision is taken and `SourcesMoved` raised, for the caller to
        plan anew; not with `exact` and not with --locked.
        """
        missing = [item for item in artifacts if not self.present(item)]
        if not missing:
            return []
        with file_lock(self.layout.locks / "sources.lock", "fetching sources", say=say):
            todo = [item for item in missing if not self.present(item)]
            todo = self._from_folder(todo)
            if todo and self.settings.offline:
                raise missing_error(
                    [Missing(item, "it is not in the folder") for item in todo], self.settings
                )
            if todo:
                self._fetch_kinds(todo, say, exact or self.settings.locked)
        return missing

    def tell_size(self, artifacts: Iterable[LockedArtifact], say: Say) -> None:
        """Say what is about to be fetched, as far as the lock files know; an error where it has no room."""
        folder = self.settings.check_folder()
        todo = [
            item
            for item in artifacts
            if not self.present(item) and not (folder and (folder / item.file.name).is_file())
        ]
        size = sum(item.file.size or 0 for item in todo)
        if not size:
            return
        say(
            f"{len(todo)} sources to fetch; the wheels among them whose size is locked have "
            f"{size / 1e9:.2f} GB"
        )
        free = shutil.disk_usage(self._scratch()).free
        if free < size:
            raise WmlceError(
                f"{size / 1e9:.2f} GB of sources have no room in {self.layout.cached_sources}: "
                f"{free / 1e9:.2f} GB are free",
                remedy="free some space, or set WMLCE_CACHE to a folder on another disk",
            )

    def place(self, artifacts: Iterable[LockedArtifact]) -> None:
        """Show the cached files under build/sources, where a recipe built by hand with another tool finds
        them.
        """
        for item in artifacts:
            target = self.layout.sources / item.file.name
            source = self.cached(item)
            if not (target.is_file() and target.stat().st_size == source.stat().st_size):
                link_or_copy(source, target)

    def _from_folder(self, items: Sequence[LockedArtifact]) -> list[LockedArtifact]:
        """Take what a folder of files has, such as a release's bundle; returns what it has not."""
        folder = self.settings.check_folder()
        if folder is None:
            return list(items)
        absent: list[LockedArtifact] = []
        damaged: list[tuple[LockedArtifact, str]] = []
        with tempfile.TemporaryDirectory(prefix="wmlce-", dir=self._scratch()) as scratch:
            for item in items:
                path = folder / item.file.name
                if not path.is_file():
                    absent.append(item)
                    continue
                copy = Path(scratch) / item.file.name
                shutil.copyfile(path, copy)
                actual = sha256_file(copy)
                if actual == item.file.sha256:
                    store_atomic(copy, self.cached(item))
                else:
                    damaged.append((item, actual))
        if damaged:
            first = damaged[0][0]
            raise WmlceError(
                f"wrong sha256 for {', '.join(item.file.name for item, _ in damaged[:5])} of recipe "
                f"'{first.recipes()}' (from the folder {folder})",
                detail=[
                    f"{item.file.name}: locked {item.file.sha256}, found {actual}" for item, actual in damaged
                ],
                remedy="do not build from it; `sha256sum --quiet -c SHA256SUMS` in "
                "the folder names what is damaged: "
                "copy it again, or write the folder again with `wmlce source bundle`",
                recipe=first.entry.recipes[0],
            )
        return absent

    def _scratch(self) -> Path:
        scratch = self.layout.cached_sources
        scratch.mkdir(parents=True, exist_ok=True)
        return scratch

    def accept(self, item: LockedArtifact, path: Path, origin: str) -> None:
        """Check a fetched file and store it; a wrong hash is an error, and the file is not kept."""
        actual = sha256_file(path)
        if actual != item.file.sha256:
            raise WmlceError(
                f"wrong sha256 for {item.file.name} of recipe '{item.recipes()}' (from {origin})",
                detail=[f"locked: {item.file.sha256}", f"found:  {actual}"],
                remedy="do not build from it; if the archive replaced the file on purpose, lock it again: "
                + (
                    "wmlce lock sources"
                    if item.entry.origin == "debian"
                    else "wmlce lock sources or wmlce lock wheels"
                ),
                recipe=item.entry.recipes[0],
            )
        if path.is_symlink():  # apt links to what a mirror in a folder (file:) has
            linked, path = path, path.with_name(f"{path.name}.copy")
            shutil.copyfile(linked, path)
        store_atomic(path, self.cached(item))

    def _fetch_kinds(self, todo: Sequence[LockedArtifact], say: Say, exact: bool) -> None:
        from_debian = [item for item in todo if item.entry.origin == "debian"]
        python = [item for item in todo if item.entry.origin != "debian"]
        if from_debian:
            find_mirror()  # an error before the others are fetched
        lock = threading.Lock()

        def report(text: str) -> None:
            with lock:
                say(text)

        with tempfile.TemporaryDirectory(prefix="fetch-", dir=self._scratch()) as scratch:
            errors: list[BaseException] = []
            missing: list[Missing] = []
            replacements: list[debian.Replacement] = []
            with ThreadPoolExecutor(max_workers=3) as pool:
                apt_job = None
                if from_debian:
                    folder = Path(scratch) / "debian"
                    apt_job = pool.submit(
                        debian.fetch,
                        self.layout,
                        from_debian,
                        folder,
                        report,
                        self.accept,
                        self.settings,
                        exact=exact,
                    )
                # the largest artifacts decide the time, so they are spread first
                shares = [share for share in (python[0::2], python[1::2]) if share]
                pip_jobs = [
                    pool.submit(
                        pypi.fetch, share, Path(scratch) / f"pypi{number}", report, self.accept, self.settings
                    )
                    for number, share in enumerate(shares)
                ]
            for job in pip_jobs:
                if (error := job.exception()) is not None:
                    errors.append(error)
                else:
                    missing += job.result()
            if apt_job is not None:
                if (error := apt_job.exception()) is not None:
                    errors.append(error)
                else:
                    missing += apt_job.result().missing
                    replacements = apt_job.result().replacements
            fresh = [self._take(replacement, say) for replacement in replacements]
        if fresh:
            drift.add(self.layout, fresh)
        if errors:
            raise errors[0]
        if missing:
            raise missing_error(missing, self.settings)
        if fresh:
            raise drift.SourcesMoved(fresh)

    def _take(self, replacement: debian.Replacement, say: Say) -> drift.MovedSource:
        """Keep the files of another revision, under the names that recipes use."""
        entry = replacement.entry
        locked = next(item for item in self.entries if _same_package(item, entry))
        digests = {file.name: file.sha256 for file in locked.files}
        files = []
        for file in replacement.files:
            renamed = LockedFile(name=file.name, sha256=file.sha256)
            self.accept(LockedArtifact(entry, renamed), file.path, "Debian's archive")
            files.append(
                drift.MovedFile(
                    name=file.name,
                    sha256=file.sha256,
                    locked_sha256=digests[file.name],
                    archive_name=file.archive_name,
                )
            )
        age = ", which is OLDER and may lack security fixes" if replacement.older else ""
        say(
            f"NOTE: {entry.archive} no longer has {entry.package} {locked.version}; taking its "
            f"{replacement.version} instead{age} (recipe {', '.join(entry.recipes)})"
        )
        return drift.MovedSource(
            recipes=entry.recipes,
            kind=entry.kind,
            suite=entry.suite or "",
            package=entry.package,
            locked=locked.version,
            version=replacement.version,
            files=files,
        )


def _same_package(entry: LockedSource, other: LockedSource) -> bool:
    return (entry.kind, entry.suite, entry.package) == (other.kind, other.suite, other.package)


Result = TypeVar("Result")


def replan_when_moved(attempt: Callable[[], Result], say: Say) -> Result:
    """Call `attempt`, again whenever it found that Debian has moved on: what it planned is then outdated."""
    for _ in range(5):
        try:
            return attempt()
        except drift.SourcesMoved as error:
            say(f"planning again with {', '.join(item.title() for item in error.moved)}")
    return attempt()
