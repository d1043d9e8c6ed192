"""Fetching locked Debian packages: from the mirror, from another revision that shares the file, from the
snapshot archive, and where none has it, what the release has now instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from wmlce.sources.apt import PrivateApt
from wmlce.sources.drift import upstream
from wmlce.sources.model import SUITE, LockedArtifact, LockedSource, role
from wmlce.sources.settings import Settings
from wmlce.sources.signed_lists import SignedLists
from wmlce.sources.suite import Candidate, Mirror, Suite, Trouble, compare_versions, find_mirror, has_apt
from wmlce.sources.unavailable import Missing
from wmlce.util.errors import WmlceError
from wmlce.util.files import sha256_file
from wmlce.util.layout import Layout

Accept = Callable[[LockedArtifact, Path, str], None]


def open_suite(
    layout: Layout,
    say: Callable[[str], None],
    *,
    suite: str = SUITE,
    mirror: Mirror | None = None,
    folder: Path | None = None,
    sources: bool | None = None,
) -> Suite:
    """A release of Debian: by apt, which has the machine's own settings, where there is one."""
    kind = PrivateApt if has_apt() else SignedLists
    return kind(layout, say, suite=suite, mirror=mirror, folder=folder, sources=sources)


@dataclass(frozen=True)
class Fetched:
    """A file that came from the archive: the name that recipes use, Debian's own, content and place."""

    name: str
    archive_name: str
    sha256: str
    path: Path


@dataclass(frozen=True)
class Replacement:
    """Another version of an entry's package, fetched with all files that the entry names.

    older: than the locked one, as on a mirror without Debian's security updates
    """

    entry: LockedSource
    version: str
    files: list[Fetched]
    older: bool


@dataclass
class Outcome:
    """What fetching left to decide."""

    missing: list[Missing] = field(default_factory=list)
    replacements: list[Replacement] = field(default_factory=list)


def fetch(
    layout: Layout,
    items: Sequence[LockedArtifact],
    folder: Path,
    say: Callable[[str], None],
    accept: Accept,
    settings: Settings,
    *,
    exact: bool,
) -> Outcome:
    """Fetch Debian sources and binaries; `accept` checks and keeps a file. `exact`: nothing may stand in."""
    by_suite: dict[str, list[LockedArtifact]] = {}
    for item in items:
        by_suite.setdefault(item.entry.suite or "", []).append(item)

    def fetch_suite(suite: str) -> Outcome:
        return _fetch_suite(
            layout, suite, by_suite[suite], folder, say, accept, settings.snapshot, exact=exact
        )

    # at once, as each mostly waits for the mirror
    with ThreadPoolExecutor(max_workers=len(by_suite)) as pool:
        outcomes = list(pool.map(fetch_suite, sorted(by_suite)))
    return Outcome(
        [item for outcome in outcomes for item in outcome.missing],
        [item for outcome in outcomes for item in outcome.replacements],
    )


def _fetch_suite(
    layout: Layout,
    suite: str,
    items: Sequence[LockedArtifact],
    folder: Path,
    say: Callable[[str], None],
    accept: Accept,
    snapshot: str | None,
    *,
    exact: bool,
) -> Outcome:
    outcome = Outcome()
    release = _Release(layout, suite, folder / suite, say, items)
    unfetched = release.fetch(items, accept)
    if unfetched and snapshot:
        unfetched = _from_snapshot(layout, snapshot, unfetched, folder / f"{suite}-snapshot", say, accept)
    done: set[str] = set()
    for item in unfetched:
        replacement = None
        if not exact and item.entry.title() not in done and not release.contradicts(item):
            replacement = release.replacement(item.entry)
        if replacement is not None:
            done.add(item.entry.title())
            outcome.replacements.append(replacement)
        elif item.entry.title() not in done:
            outcome.missing.append(Missing(item, release.offered(item)))
    return outcome


class _Release:
    """One release of Debian on one mirror."""

    def __init__(
        self,
        layout: Layout,
        suite: str,
        folder: Path,
        say: Callable[[str], None],
        items: Sequence[LockedArtifact],
        mirror: Mirror | None = None,
    ) -> None:
        self.folder = folder
        self.say = say
        # a snapshot's lists are not kept
        self.suite = open_suite(
            layout,
            say,
            suite=suite,
            mirror=mirror,
            folder=folder / "lists" if mirror else None,
            sources=suite == SUITE or any(item.entry.kind == "debian-source" for item in items),
        )
        self._tries = 0
        self._offers: dict[tuple[str, str], list[Candidate]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def fetch(self, items: Sequence[LockedArtifact], accept: Accept) -> list[LockedArtifact]:
        """Fetch and accept, each kind at once; returns what the mirror has not."""
        self.suite.update()
        unfetched: list[LockedArtifact] = []
        for kind in ("debian-source", "debian-binary"):
            of_kind = [item for item in items if item.entry.kind == kind]
            if not of_kind:
                continue
            packages = sorted({(item.entry.package, item.entry.version) for item in of_kind})
            names = {item.fetched_name for item in of_kind}
            self.say(
                f"fetching {len(packages)} package{'s' if len(packages) > 1 else ''} of Debian "
                f"{self.suite.suite} with {self.suite.BY}"
            )
            place, trouble = self._download(kind, packages, names)
            # apt also fetches files that no recipe uses; only the locked ones have to be there
            missing = [item for item in of_kind if not _in(place, item)]
            if missing and self.suite.update(force=self.suite.stale(60.0)):
                self._offers.clear()
                packages = sorted({(item.entry.package, item.entry.version) for item in missing})
                place, trouble = self._download(kind, packages, names, place=place)
                missing = [item for item in of_kind if not _in(place, item)]
            for item in of_kind:
                if item not in missing:
                    accept(item, place / item.fetched_name, self.suite.BY)
            for item in missing:
                elsewhere = self._same_file_elsewhere(item, trouble)
                if elsewhere is None:
                    unfetched.append(item)
                else:
                    accept(item, elsewhere, self.suite.BY)
        return unfetched

    def _download(
        self,
        kind: str,
        packages: Sequence[tuple[str, str]],
        names: Collection[str],
        *,
        place: Path | None = None,
    ) -> tuple[Path, Trouble | None]:
        self._tries += 1
        folder = place or self.folder / str(self._tries)
        folder.mkdir(parents=True, exist_ok=True)
        return folder, self.suite.download(kind, packages, names, folder)

    def candidates(self, entry: LockedSource) -> list[Candidate]:
        key = (entry.kind, entry.package)
        if key not in self._offers:
            self._offers[key] = self.suite.offers(*key)
        return self._offers[key]

    def _same_file_elsewhere(self, item: LockedArtifact, trouble: Trouble | None) -> Path | None:
        """Revisions of one upstream version share its tarball: take it from whichever the mirror still
        has.
        """
        entry = item.entry
        for offer in self.candidates(entry):
            if offer.files.get(item.fetched_name) == item.file.sha256:
                version = entry.package, offer.version
                place, trouble = self._download(entry.kind, [version], [item.fetched_name])
                if _in(place, item):
                    return place / item.fetched_name
        if trouble is not None:
            raise WmlceError(
                f"{item.file.name} of recipe '{item.recipes()}' could not be fetched with {self.suite.BY}",
                detail=trouble.lines,
                remedy=trouble.remedy,
                recipe=entry.recipes[0],
            )
        return None

    def contradicts(self, item: LockedArtifact) -> bool:
        """Does the release have this very version with another content? Then nothing may stand in for it."""
        return any(
            offer.version == item.entry.version
            and offer.files.get(item.fetched_name, item.file.sha256) != item.file.sha256
            for offer in self.candidates(item.entry)
        )

    def replacement(self, entry: LockedSource) -> Replacement | None:
        """What the release has now of the entry's package: a revision of the same upstream version where
        there is one, else its newest version. Debian's signature and every file's hash
        have been checked.
        """
        others = [offer for offer in self.candidates(entry) if offer.version != entry.version]
        others.sort(key=lambda offer: upstream(offer.version) != upstream(entry.version))
        for offer in others:
            names = _counterparts(entry, offer)
            if names is None:
                continue
            version = entry.package, offer.version
            place, _ = self._download(entry.kind, [version], names.values())
            files = [
                Fetched(name, other, offer.files[other], place / other)
                for name, other in names.items()
                if (place / other).is_file() and sha256_file(place / other) == offer.files[other]
            ]
            if len(files) == len(names):
                return Replacement(
                    entry, offer.version, files, compare_versions(entry.version, offer.version) > 0
                )
        return None

    def offered(self, item: LockedArtifact) -> str:
        """What the release has of a missing file's package, in words."""
        entry, offered = item.entry, self.candidates(item.entry)
        if not offered:
            return f"Debian {self.suite.suite} has no package {entry.package}"
        versions = [offer.version for offer in offered]
        if entry.version not in versions:
            return f"Debian {self.suite.suite} has moved on: it has {entry.package} {', '.join(versions)}"
        if any(offer.files.get(item.fetched_name) == item.file.sha256 for offer in offered):
            return "the mirror lists the file but does not have it: another mirror may, or this one later"
        return f"the mirror's {entry.package} {entry.version} has no file of this content"


def _in(folder: Path, item: LockedArtifact) -> bool:
    return (folder / item.fetched_name).is_file()


def _counterparts(entry: LockedSource, offer: Candidate) -> dict[str, str] | None:
    """The entry's file names with those that play the same part in another version; None where one lacks."""
    counterparts = {}
    for file in entry.files:
        if entry.kind == "debian-binary":
            same = list(offer.files)
        else:
            same = [name for name in offer.files if role(name) == role(file.name)]
        # recipes unpack by the name's ending
        same = [name for name in same if Path(name).suffix == Path(file.name).suffix]
        if len(same) != 1:
            return None
        counterparts[file.name] = same[0]
    return counterparts


def _from_snapshot(
    layout: Layout,
    address: str,
    items: Sequence[LockedArtifact],
    folder: Path,
    say: Callable[[str], None],
    accept: Accept,
) -> list[LockedArtifact]:
    """Fetch from the permanent archive as it was when the sources were locked; returns what is not there."""
    unfetched = [item for item in items if item.entry.snapshot is None]
    for time in sorted({item.entry.snapshot for item in items if item.entry.snapshot}):
        mirror = Mirror(
            main=f"{address}/archive/debian/{time}",
            security=f"{address}/archive/debian-security/{time}",
            keyring=find_mirror().keyring,
            permanent=True,
        )
        some = [item for item in items if item.entry.snapshot == time]
        say(f"asking Debian's snapshot archive of {time} for {', '.join(item.file.name for item in some)}")
        release = _Release(layout, some[0].entry.suite or "", folder / time, say, some, mirror)
        accepted: list[LockedArtifact] = []

        def keep(
            item: LockedArtifact, path: Path, origin: str, done: list[LockedArtifact] = accepted
        ) -> None:
            accept(item, path, f"the snapshot archive, by {origin}")
            done.append(item)

        try:
            release.fetch(some, keep)
        except WmlceError as error:
            say(f"the snapshot archive did not help: {error.message}")
        unfetched += [item for item in some if item not in accepted]
    return unfetched
