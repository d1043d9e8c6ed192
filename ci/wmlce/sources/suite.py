"""One release of Debian on a mirror: which mirror, and what apt (apt.py) and the archive's own lists
(signed_lists.py) have in common.
"""

from __future__ import annotations

import functools
import re
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from debian.debian_support import version_compare

from wmlce.sources.model import SUITE
from wmlce.sources.settings import FOLDER, KEYRING, MIRROR, Settings, require_network
from wmlce.util.clients import run_client
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock

LISTS_AGE_S = 6 * 3600.0
ROLLING = ("sid", "unstable", "testing")
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_APT = ("apt-get", "apt-cache", "apt-config", "dpkg")
"""There are distributions that have only some of these, for packages of another kind."""


@dataclass(frozen=True)
class Mirror:
    """Where Debian and its security updates come from.

    keyring:   a file of keys, where the user or the machine names one
    permanent: a snapshot archive, whose lists are old by their nature
    """

    main: str
    security: str | None
    keyring: str | None
    permanent: bool = False


@dataclass(frozen=True)
class Candidate:
    """One version of a package that the release offers: its files by name with their sha256, and where each
    may be, below the mirror's address (of apt) or with it: a security update moves into the release later.
    """

    version: str
    files: Mapping[str, str]
    places: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Trouble:
    """Why files did not come that the mirror may have, and what to do."""

    lines: Sequence[str]
    remedy: str


UNREACHABLE = "the network or the mirror is not reachable: run `wmlce doctor`, then try again"


def has_apt() -> bool:
    return all(shutil.which(name) for name in _APT)


def find_mirror() -> Mirror:
    """The mirrors that the user names, else the machine's own, as its apt configuration names them."""
    require_network("Debian's archive")
    settings = Settings.from_environment()
    if settings.keyring is not None and not settings.keyring.is_file():
        raise WmlceError(
            f"the file of keys {settings.keyring} does not exist",
            remedy=f"correct --debian-keyring ({KEYRING})",
        )
    keyring = str(settings.keyring) if settings.keyring else str(_KEYRING) if _KEYRING.is_file() else None
    if (named := settings.mirror) is not None:
        return Mirror(named, _beside(named), keyring)
    if not has_apt():
        raise WmlceError(
            "this machine has no apt-get, whose settings would name a mirror of Debian, and none is named",
            remedy=f"name one: --debian-mirror URL, or {MIRROR}=URL, the address of a folder with dists and "
            "pool. Or on a machine with Debian run `wmlce source bundle DIR`, carry DIR here and give "
            f"`--offline DIR` (or {FOLDER}=DIR, to fetch what else is missing)",
        )
    # without release info: also on a machine that has never read its package lists
    answer = run_client(
        [
            *("apt-get", "indextargets", "--no-release-info"),
            *("--format", "$(SITE)|$(RELEASE)|$(SOURCESENTRY)", "Created-By: Packages"),
        ],
        title="reading apt's configuration",
        say=lambda _: None,
        limit_s=60,
    )
    main = security = signed_by = None
    for line in answer.lines:
        site, _, rest = line.partition("|")
        release, _, entry = rest.partition("|")
        tail = site.rstrip("/")
        if release.endswith("-security") or tail.endswith(("/debian-security", "/security")):
            security = security or site
        elif main is None and (tail.endswith("/debian") or release == SUITE):
            main, signed_by = site, _signed_by(entry.rpartition(":")[0], site)
    if main is None:
        raise WmlceError(
            "this machine's apt configuration names no Debian mirror",
            detail=answer.lines[-3:],
            remedy=f"name one: --debian-mirror URL, or {MIRROR}=URL; only lists with Debian's signature are "
            f"used. A folder with the files can stand in: --offline DIR, or {FOLDER}=DIR",
        )
    if signed_by is not None and settings.keyring is None:
        keyring = signed_by
    # a minimal system often names the release alone
    return Mirror(main, security or _beside(main), keyring)


def _beside(main: str) -> str | None:
    """Where most mirrors have the security updates; that they are not there is no error."""
    return f"{main.rstrip('/')}-security" if main.rstrip("/").endswith("/debian") else None


def _signed_by(listing: str, site: str) -> str | None:
    """The file of keys that one of apt's lists (sources.list, *.sources) names for a site."""
    try:
        text = Path(listing).read_text()
    except OSError:
        return None
    parts = text.split("\n\n") if listing.endswith(".sources") else text.splitlines()
    for part in parts:
        keyring = re.search(r"(?:signed-by=|^Signed-By:[ \t]*)(/[^\s\],]+)", part, re.MULTILINE)
        if site.rstrip("/") in part and keyring and Path(keyring[1]).is_file():
            return keyring[1]
    return None


class Suite(ABC):
    """A release of Debian: its lists, kept for some hours in the cache, and its files. Only lists that Debian
    has signed are used, whatever the machine's own apt allows.
    """

    NAME: ClassVar[str]
    """Name of its folders in the cache."""
    BY: ClassVar[str]
    """What fetches, in words."""

    def __init__(
        self,
        layout: Layout,
        say: Callable[[str], None],
        *,
        suite: str = SUITE,
        mirror: Mirror | None = None,
        folder: Path | None = None,
        sources: bool | None = None,
    ) -> None:
        """`sources`: read the lists of source packages too; by default of the release that sources are of."""
        self.layout = layout
        self.sources = suite == SUITE if sources is None else sources
        parts = [self.NAME, *([suite] if suite != SUITE else [])]
        if self.sources != (suite == SUITE):
            parts.append("src" if self.sources else "bin")
        self.folder = folder or layout.cache / "-".join(parts)
        self.suite = suite
        self.mirror = mirror
        self.say = say

    def parts(self, mirror: Mirror) -> list[tuple[str, str, bool]]:
        """What of the archive belongs to the release: site, suite, and whether it can be done without."""
        parts = [(mirror.main, self.suite, False)]
        if self.suite not in ROLLING:
            parts.append((mirror.main, f"{self.suite}-updates", True))
            if mirror.security:
                parts.append((mirror.security, f"{self.suite}-security", True))
        return parts

    def stale(self, age_s: float) -> bool:
        """Are the lists older than that?"""
        stamp = self.folder / "updated"
        return not stamp.is_file() or time.time() - stamp.stat().st_mtime > age_s

    def update(self, *, force: bool = False) -> bool:
        """Have lists of the release that are at most some hours old; True if they were fetched now."""
        name = f"{self.folder.name}.lock"
        with file_lock(self.layout.locks / name, "reading Debian's package lists", say=self.say):
            self._prepare()
            if not force and not self.stale(LISTS_AGE_S):
                return False
            self.say(f"reading Debian {self.suite}'s package lists with {self.BY}")
            self._read()
            (self.folder / "updated").touch()
            return True

    def forget(self) -> None:
        """What was read is of another mirror."""
        (self.folder / "updated").unlink(missing_ok=True)

    def _say_absent(self, suites: Collection[str]) -> None:
        if suites:
            self.say(
                f"the mirror has no {', '.join(sorted(suites))}: revisions that are only there are missed"
            )

    @abstractmethod
    def _prepare(self) -> None:
        """Settle which mirror is asked, and `forget` the lists of another one."""

    @abstractmethod
    def _read(self) -> None:
        """Fetch the lists."""

    @abstractmethod
    def offers(self, kind: str, package: str) -> list[Candidate]:
        """What the release offers of a package, the newest first; empty when it has no such package."""

    @abstractmethod
    def download(
        self, kind: str, versions: Sequence[tuple[str, str]], names: Collection[str], folder: Path
    ) -> Trouble | None:
        """Put files of packages (name, version) into a folder. What the mirror has not is not there then.

        names: of the files that are wanted; others may come, too
        """


def candidates(stanzas: Iterable[tuple[str, str]], kind: str, package: str) -> list[Candidate]:
    """The versions of a package in stanzas of the archive's lists; each has its mirror's address."""
    files: dict[str, dict[str, str]] = {}
    places: dict[str, dict[str, list[str]]] = {}
    for site, text in stanzas:
        fields: dict[str, list[str]] = {}
        for line in text.splitlines():
            if line.startswith(" ") and fields:
                fields[next(reversed(fields))].append(line.strip())
            elif ":" in line:
                key, _, value = line.partition(":")
                fields[key] = [value.strip()]
        if kind == "debian-source" or fields.get("Package") == [package]:
            for version in fields.get("Version", []):
                for name, (sha256, place) in _files_of(fields).items():
                    files.setdefault(version, {})[name] = sha256
                    urls = places.setdefault(version, {}).setdefault(name, [])
                    urls.append(f"{site}{quote(place, safe='/+~:')}")
    versions = sorted(files, key=functools.cmp_to_key(compare_versions), reverse=True)
    return [Candidate(version, files[version], places[version]) for version in versions]


def _files_of(stanza: Mapping[str, list[str]]) -> dict[str, tuple[str, str]]:
    """By name the sha256 of a package's files, and where they are on the mirror."""
    files = {}
    for line in stanza.get("Checksums-Sha256", []):
        digest, _, rest = line.partition(" ")
        if rest:
            name = rest.split()[-1]
            files[name] = digest, f"{stanza.get('Directory', [''])[0]}/{name}"
    if "Filename" in stanza and "SHA256" in stanza:
        # a binary package; apt names the file by its full version
        name, version = stanza["Package"][0], stanza["Version"][0].replace(":", "%3a")
        full = f"{name}_{version}_{stanza['Architecture'][0]}.deb"
        files[full] = stanza["SHA256"][0], stanza["Filename"][0]
    return files


def compare_versions(first: str, second: str) -> int:
    """Debian's order of versions."""
    return int(version_compare(first, second))
