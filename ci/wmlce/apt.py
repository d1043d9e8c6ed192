"""Debian sources through apt with a state of its own: works for any user and leaves the machine's apt alone.

The mirror, its keys and the connection settings are the machine's; the release is fixed, because the lock names
that release's versions.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wmlce.clients import Answer, run_client
from wmlce.errors import WmlceError
from wmlce.files import write_atomic
from wmlce.layout import Layout

if TYPE_CHECKING:
    from wmlce.sources import SourceLock, Wanted

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
            remedy="build on Debian, or add a Debian mirror to apt's sources; a folder with the files can stand in: "
            "WMLCE_SOURCES=DIR",
        )
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    return Mirror(main, security, str(keyring) if keyring.is_file() else None)


class PrivateApt:
    """An apt state in the cache, with its own lists and configuration."""

    def __init__(self, layout: Layout, say: Callable[[str], None]) -> None:
        self.folder = layout.apt_state
        self.say = say

    def _configure(self) -> None:
        folder = self.folder
        if any(character in str(folder) for character in '";\n'):
            raise WmlceError(
                f"apt cannot use the folder {folder}", remedy="point WMLCE_CACHE at a plain path"
            )
        for part in ("etc/preferences.d", "state/lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        mirror = find_mirror()
        signed = f" [signed-by={mirror.keyring}]" if mirror.keyring else ""
        lines = []
        for kind in ("deb", "deb-src"):
            for suite in (SUITE, f"{SUITE}-updates"):
                lines.append(f"{kind}{signed} {mirror.main} {suite} main")
            if mirror.security:
                lines.append(f"{kind}{signed} {mirror.security} {SUITE}-security main")
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
Dir::Etc "{folder}/etc"; Dir::Etc::sourcelist "{listing}"; Dir::Etc::sourceparts "-";
Dir::Etc::parts "-"; Dir::Etc::main "-"; Dir::Etc::preferences "-"; Dir::Etc::preferencesparts "-";
Dir::Etc::trusted "/etc/apt/trusted.gpg"; Dir::Etc::trustedparts "/etc/apt/trusted.gpg.d";
Dir::Etc::netrc "/etc/apt/auth.conf"; Dir::Etc::netrcparts "/etc/apt/auth.conf.d";
Dir::State "{folder}/state"; Dir::State::status "{folder}/status"; Dir::Cache "{folder}/cache";
Dir::Log "{folder}"; APT::Sandbox::User ""; APT::Architecture "amd64"; APT::Architectures {{ "amd64"; }};
Acquire::Languages "none"; Acquire::Retries "3"; Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
APT::Get::Assume-Yes "true"; Debug::NoLocking "false";
"""
        write_atomic(folder / "apt.conf", "\n".join(kept) + own)

    def run(self, *arguments: str, cwd: Path | None = None, limit_s: float = 1200) -> Answer:
        """Run an apt command on the private state."""
        return run_client(
            arguments,
            title=f"running {arguments[0]} {arguments[1] if len(arguments) > 1 else ''}".rstrip(),
            say=self.say,
            limit_s=limit_s,
            env={"APT_CONFIG": str(self.folder / "apt.conf"), "DEBIAN_FRONTEND": "noninteractive"},
            cwd=cwd,
        )

    def update(self, *, force: bool = False) -> bool:
        """Have lists of the release that are at most some hours old; True if they were fetched now."""
        self._configure()
        stamp = self.folder / "updated"
        if not force and stamp.is_file() and time.time() - stamp.stat().st_mtime < LISTS_AGE_S:
            return False
        self.say(f"reading Debian {SUITE}'s package lists (apt state of its own)")
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


def fetch(lock: SourceLock, items: Sequence[Wanted], folder: Path, say: Callable[[str], None]) -> None:
    """Fetch Debian sources and binaries into the cache, each kind with one apt-get."""
    apt = PrivateApt(lock.layout, say)
    fresh = apt.update()
    folder.mkdir(parents=True, exist_ok=True)
    entries = {(item.entry.kind, item.entry.package): item.entry for item in items}
    for kind, command in (
        ("debian-source", ["apt-get", "source", "--download-only", "-q"]),
        ("debian-binary", ["apt-get", "download", "-q"]),
    ):
        chosen = [entry for (entry_kind, _), entry in sorted(entries.items()) if entry_kind == kind]
        if not chosen:
            continue
        say(f"fetching {len(chosen)} Debian package{'s' if len(chosen) > 1 else ''} with apt-get")
        specs = [f"{entry.package}={entry.version}" for entry in chosen]
        answer = apt.run(*command, *specs, cwd=folder)
        if answer.code != 0 and not fresh:
            apt.update(force=True)
            fresh = True
            answer = apt.run(*command, *specs, cwd=folder)
        if answer.code != 0:
            raise _failure(apt, lock, items, answer)
    for item in items:
        path = folder / item.file.name
        if not path.is_file():
            raise WmlceError(
                f"apt-get brought no {item.file.name} for recipe '{item.recipes()}' ({item.entry.title()})",
                detail=[f"it brought: {', '.join(sorted(p.name for p in folder.iterdir()))[:400]}"],
                remedy="lock it anew: wmlce lock sources",
                recipe=item.entry.recipes[0],
            )
        lock.accept(item, path, "apt-get")


def _failure(apt: PrivateApt, lock: SourceLock, items: Sequence[Wanted], answer: Answer) -> WmlceError:
    detail = [line for line in answer.lines if line.startswith(("E:", "Err"))][-6:]
    for item in items:
        entry = item.entry
        newest = newest_version(apt, entry.kind, entry.package)
        if newest is None:
            return WmlceError(
                f"Debian {SUITE} has no package {entry.package} (recipe '{item.recipes()}')",
                detail=detail,
                remedy="correct recipes/sources.lock.yaml",
                recipe=entry.recipes[0],
            )
        if newest != entry.version and re.search(rf"{re.escape(entry.package)}\b", answer.text):
            return WmlceError(
                f"Debian {SUITE} has moved on: recipe '{item.recipes()}' is locked to {entry.package} "
                f"{entry.version}, the archive now has {newest}",
                detail=detail,
                remedy=f"take the new version with `wmlce lock sources {entry.recipes[0]}`, then build again",
                recipe=entry.recipes[0],
            )
    network = any(word in answer.text for word in _NETWORK)
    names = ", ".join(sorted({item.entry.package for item in items}))
    return WmlceError(
        f"apt-get could not fetch: {names}",
        detail=detail or answer.lines[-5:],
        remedy="the network or the mirror is not reachable: run `wmlce doctor`, then try again"
        if network
        else "see the lines above, then run the command again",
        recipe=items[0].entry.recipes[0],
    )


def newest_version(apt: PrivateApt, kind: str, package: str) -> str | None:
    """The version that the release offers now, or None when it has no such package."""
    if kind == "debian-source":
        answer = apt.run("apt-cache", "showsrc", "--only-source", package, limit_s=120)
        versions = [line.split(":", 1)[1].strip() for line in answer.lines if line.startswith("Version:")]
        newest: str | None = None
        for version in versions:
            if newest is None or _later(version, newest):
                newest = version
        return newest
    answer = apt.run("apt-cache", "policy", package, limit_s=120)
    for line in answer.lines:
        key, _, value = line.strip().partition(": ")
        if key == "Candidate" and value and value != "(none)":
            return value
    return None


def _later(one: str, other: str) -> bool:
    if shutil.which("dpkg") is None:
        return one > other
    answer = run_client(
        ["dpkg", "--compare-versions", one, "gt", other], title="comparing", say=lambda _: None, limit_s=20
    )
    return answer.code == 0
