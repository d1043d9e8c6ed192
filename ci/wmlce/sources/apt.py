"""Debian sources through apt with a state of its own: works for any user and leaves the machine's apt alone.

The mirror, its keys and the connection settings are the machine's; the release is fixed, because the lock
names that release's versions.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wmlce.sources.model import LockedArtifact
from wmlce.util.clients import CommandResult, run_client
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout

SUITE = "bookworm"
LISTS_AGE_S = 6 * 3600.0
_NETWORK = (
    "Could not resolve",
    "Temporary failure",
    "Could not connect",
    "Connection refused",
    "Unable to connect",
)


@dataclass(frozen=True)
class Mirror:
    """Where the machine gets Debian and its security updates from."""

    main: str
    security: str | None
    keyring: str | None


def find_mirror() -> Mirror:
    """The machine's own Debian mirrors, as its apt configuration names them."""
    answer = run_client(
        ["apt-get", "indextargets", "--format", "$(SITE)|$(RELEASE)", "Created-By: Packages"],
        title="reading apt's configuration",
        say=lambda _: None,
        limit_s=60,
    )
    main = security = None
    for line in answer.lines:
        site, _, release = line.partition("|")
        tail = site.rstrip("/")
        if release.endswith("-security") or tail.endswith(("/debian-security", "/security")):
            security = security or site
        elif tail.endswith("/debian") or release == SUITE:
            main = main or site
    if main is None:
        raise WmlceError(
            "this machine's apt configuration names no Debian mirror",
            detail=answer.lines[-3:],
            remedy="build on Debian, or add a Debian mirror to apt's sources; a folder with the files can "
            "stand in: WMLCE_SOURCES=DIR",
        )
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    return Mirror(main, security, str(keyring) if keyring.is_file() else None)


class PrivateApt:
    """An apt state in the cache, with its own lists and configuration, for one release of Debian."""

    def __init__(self, layout: Layout, say: Callable[[str], None], *, suite: str = SUITE) -> None:
        self.folder = layout.apt_state if suite == SUITE else layout.apt_state.with_name(f"apt-{suite}")
        self.suite = suite
        self.say = say

    def _configure(self) -> None:
        folder = self.folder
        if any(character in str(folder) for character in '";\n'):
            raise WmlceError(
                f"apt cannot use the folder {folder}", remedy="point WMLCE_CACHE at a plain path"
            )
        for part in (
            "etc/preferences.d",
            "etc/apt.conf.d",
            "etc/sources.list.d",
            "state/lists/partial",
            "cache/archives/partial",
        ):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        mirror = find_mirror()
        signed = f" [signed-by={mirror.keyring}]" if mirror.keyring else ""
        lines = []
        stable = self.suite != "sid"
        # sources are taken from one release alone
        for kind in ("deb", "deb-src") if self.suite == SUITE else ("deb",):
            for suite in (self.suite, f"{self.suite}-updates") if stable else (self.suite,):
                lines.append(f"{kind}{signed} {mirror.main} {suite} main")
            if mirror.security and stable:
                lines.append(f"{kind}{signed} {mirror.security} {self.suite}-security main")
        content = "\n".join(lines) + "\n"
        listing = folder / "etc/sources.list"
        if not listing.is_file() or listing.read_text() != content:
            write_atomic(listing, content)
            (folder / "updated").unlink(missing_ok=True)
        # connection settings (proxy, time-outs) are kept; hooks of the machine must not run on a private
        # state
        dump = run_client(
            ["apt-config", "dump"], title="reading apt's configuration", say=self.say, limit_s=60
        )
        kept = [
            line
            for line in dump.lines
            if line.startswith("Acquire::") and not line.startswith("Acquire::IndexT")
        ]
        own = f"""
Dir::Etc "{folder}/etc"; Dir::Etc::sourcelist "{listing}"; Dir::Etc::sourceparts "sources.list.d";
Dir::Etc::parts "apt.conf.d"; Dir::Etc::main "none"; Dir::Etc::preferences "none";
Dir::Etc::preferencesparts "preferences.d";
Dir::Etc::trusted "/etc/apt/trusted.gpg"; Dir::Etc::trustedparts "/etc/apt/trusted.gpg.d";
Dir::Etc::netrc "/etc/apt/auth.conf"; Dir::Etc::netrcparts "/etc/apt/auth.conf.d";
Dir::State "{folder}/state"; Dir::State::status "{folder}/status"; Dir::Cache "{folder}/cache";
Dir::Log "{folder}"; APT::Sandbox::User ""; APT::Architecture "amd64"; APT::Architectures {{ "amd64"; }};
Acquire::Languages "none"; Acquire::Retries "3";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
APT::Get::Assume-Yes "true"; Debug::NoLocking "false";
"""
        write_atomic(folder / "apt.conf", "\n".join(kept) + own)

    def run(self, *arguments: str, cwd: Path | None = None, limit_s: float = 1200) -> CommandResult:
        """Run an apt command on the private state."""
        return run_client(
            arguments,
            title=f"running {arguments[0]} {arguments[1] if len(arguments) > 1 else ''}".rstrip(),
            say=self.say,
            limit_s=limit_s,
            env={"APT_CONFIG": str(self.folder / "apt.conf"), "DEBIAN_FRONTEND": "noninteractive"},
            cwd=cwd,
        )

    def stale(self, age_s: float) -> bool:
        """Are the lists older than that?"""
        stamp = self.folder / "updated"
        return not stamp.is_file() or time.time() - stamp.stat().st_mtime > age_s

    def update(self, *, force: bool = False) -> bool:
        """Have lists of the release that are at most some hours old; True if they were fetched now."""
        self._configure()
        stamp = self.folder / "updated"
        if not force and not self.stale(LISTS_AGE_S):
            return False
        self.say(f"reading Debian {self.suite}'s package lists (apt state of its own)")
        answer = self.run("apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any")
        if answer.code != 0:
            reached = not any(word in answer.text for word in _NETWORK)
            raise WmlceError(
                "Debian's package lists could not be read",
                detail=[line for line in answer.lines if line.startswith(("E:", "W:", "Err"))][-6:],
                remedy="see the lines above and `wmlce doctor`"
                if reached
                else "the network or the mirror is not reachable: run `wmlce doctor`, then try again",
            )
        stamp.touch()
        return True


@dataclass(frozen=True)
class Candidate:
    """One version of a package that the release offers, and its files by name with their sha256."""

    version: str
    files: Mapping[str, str]


def fetch(
    layout: Layout,
    items: Sequence[LockedArtifact],
    folder: Path,
    say: Callable[[str], None],
    accept: Callable[[LockedArtifact, Path, str], None],
) -> None:
    """Fetch Debian sources and binaries, each kind with one apt-get; `accept` checks and keeps a file."""
    apt = PrivateApt(layout, say)
    apt.update()
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("debian-source", "debian-binary"):
        wanted = [item for item in items if item.entry.kind == kind]
        if not wanted:
            continue
        specs = sorted({f"{item.entry.package}={item.entry.version}" for item in wanted})
        say(f"fetching {len(specs)} Debian package{'s' if len(specs) > 1 else ''} with apt-get")
        answer = apt.run(*_COMMANDS[kind], *specs, cwd=folder)
        # apt also fetches files that no recipe uses; only the locked ones have to be there
        missing = [item for item in wanted if not _arrived(item, folder)]
        if missing and apt.update(force=apt.stale(60.0)):
            answer = apt.run(*_COMMANDS[kind], *specs, cwd=folder)
            missing = [item for item in missing if not _arrived(item, folder)]
        for item in missing:
            _fetch_elsewhere(apt, item, folder, answer)
    for item in items:
        accept(item, folder / item.file.name, "apt-get")


_COMMANDS = {
    "debian-source": ["apt-get", "source", "--download-only", "-q"],
    "debian-binary": ["apt-get", "download", "-q"],
}


def _arrived(item: LockedArtifact, folder: Path) -> bool:
    return (folder / item.file.name).is_file()


def _fetch_elsewhere(apt: PrivateApt, item: LockedArtifact, folder: Path, answer: CommandResult) -> None:
    """Revisions of one upstream version share its tarball: take it from whichever the archive still has."""
    entry = item.entry
    offered = offers(apt, entry.kind, entry.package)
    for offer in offered:
        if offer.files.get(item.file.name) == item.file.sha256:
            again = apt.run(*_COMMANDS[entry.kind], f"{entry.package}={offer.version}", cwd=folder)
            if _arrived(item, folder):
                return
            answer = again
    raise _failure(item, offered, answer)


def _failure(item: LockedArtifact, offered: Sequence[Candidate], answer: CommandResult) -> WmlceError:
    entry = item.entry
    detail = [line for line in answer.lines if line.startswith(("E:", "Err"))][-6:]
    if not offered:
        return WmlceError(
            f"Debian {SUITE} has no package {entry.package} (recipe '{item.recipes()}')",
            detail=detail,
            remedy="correct recipes/sources.lock.yaml",
            recipe=entry.recipes[0],
        )
    if all(offer.files.get(item.file.name) != item.file.sha256 for offer in offered):
        newest = offered[0].version
        moved = newest != entry.version
        return WmlceError(
            f"Debian {SUITE} has moved on: recipe '{item.recipes()}' is locked to {entry.package} "
            f"{entry.version}, the archive now has {newest}"
            if moved
            else f"Debian's {entry.package} {entry.version} has no {item.file.name} with the locked sha256 "
            f"(recipe '{item.recipes()}')",
            detail=[f"missing: {item.file.name}"],
            remedy=f"take what the archive has: wmlce lock sources {entry.recipes[0]}; then build again",
            recipe=entry.recipes[0],
        )
    network = any(word in answer.text for word in _NETWORK)
    return WmlceError(
        f"apt-get could not fetch {item.file.name} for recipe '{item.recipes()}'",
        detail=detail or answer.lines[-5:],
        remedy="the network or the mirror is not reachable: run `wmlce doctor`, then try again"
        if network
        else "the mirror lists the file but does not have it: try again later, or lock another version with "
        f"`wmlce lock sources {entry.recipes[0]}`",
        recipe=entry.recipes[0],
    )


def offers(apt: PrivateApt, kind: str, package: str) -> list[Candidate]:
    """What the release offers of a package, the newest first; empty when it has no such package."""
    command = ["showsrc", "--only-source"] if kind == "debian-source" else ["show", "--all-versions"]
    answer = apt.run("apt-cache", *command, package, limit_s=120)
    found: dict[str, dict[str, str]] = {}
    stanza: dict[str, list[str]] = {}
    for line in [*answer.lines, ""]:
        if line.startswith(" ") and stanza:
            stanza[next(reversed(stanza))].append(line.strip())
        elif ":" in line:
            key, _, value = line.partition(":")
            stanza[key] = [value.strip()]
        elif not line and stanza:
            if stanza.get("Package", [""])[0] == package or kind == "debian-source":
                found.setdefault(stanza.get("Version", [""])[0], {}).update(_stanza_files(stanza))
            stanza = {}
    versions = [version for version in found if version]
    versions.sort(key=functools.cmp_to_key(_compare), reverse=True)
    return [Candidate(version, found[version]) for version in versions]


def _stanza_files(stanza: Mapping[str, list[str]]) -> dict[str, str]:
    files = {}
    for line in stanza.get("Checksums-Sha256", []):
        digest, _, rest = line.partition(" ")
        if rest:
            files[rest.split()[-1]] = digest
    if (
        "Filename" in stanza and "SHA256" in stanza
    ):  # a binary package; apt names the file by its full version
        name, version = stanza["Package"][0], stanza["Version"][0].replace(":", "%3a")
        files[f"{name}_{version}_{stanza['Architecture'][0]}.deb"] = stanza["SHA256"][0]
    return files


def _compare(one: str, other: str) -> int:
    """Debian's order of versions, by dpkg itself."""
    if one == other:
        return 0
    answer = run_client(
        ["dpkg", "--compare-versions", one, "gt", other], title="comparing", say=lambda _: None, limit_s=20
    )
    return 1 if answer.code == 0 else -1
