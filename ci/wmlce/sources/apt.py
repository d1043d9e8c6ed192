"""Debian's archive through apt with a state of its own: works for any user and leaves the machine's apt
alone.

The mirror, its keys and the connection settings are the machine's; the release is the caller's. Only lists
that Debian has signed are used, whatever the machine's own apt allows.
"""

from __future__ import annotations

import functools
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wmlce.sources.model import SUITE, LockedFile, LockedSource
from wmlce.sources.settings import FOLDER, MIRROR, Settings, require_network
from wmlce.util.clients import CommandResult, run_client
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock
from wmlce.util.platform import of_this_machine

LISTS_AGE_S = 6 * 3600.0
ROLLING = ("sid", "unstable", "testing")
NETWORK_WORDS = (
    "Could not resolve",
    "Temporary failure",
    "Could not connect",
    "Connection refused",
    "Connection timed out",
    "Connection failed",
    "Unable to connect",
)
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_PRINTED = re.compile(
    r"^'[^']+' (?P<file>[A-Za-z0-9.+~_%-]+\.deb) \d+ SHA256:(?P<sha256>[0-9a-f]{64})$",
)


@dataclass(frozen=True)
class Mirror:
    """Where Debian and its security updates come from.

    keyring:   a file of keys, where the machine names one
    permanent: a snapshot archive, whose lists are old by their nature
    """

    main: str
    security: str | None
    keyring: str | None
    permanent: bool = False


def find_mirror() -> Mirror:
    """The machine's own Debian mirrors, as its apt configuration names them."""
    require_network("Debian's archive")
    if shutil.which("apt-get") is None:
        raise WmlceError(
            "this machine has no apt-get, by which Debian's sources are fetched",
            remedy="on a machine with Debian run `wmlce source bundle DIR`, carry DIR here and give "
            f"`--offline DIR` (or {FOLDER}=DIR, to fetch what else is missing)",
        )
    if (named := Settings.from_environment().mirror) is not None:
        return Mirror(named, _beside(named), str(_KEYRING) if _KEYRING.is_file() else None)
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
    main = security = keyring = None
    for line in answer.lines:
        site, _, rest = line.partition("|")
        release, _, entry = rest.partition("|")
        tail = site.rstrip("/")
        if release.endswith("-security") or tail.endswith(("/debian-security", "/security")):
            security = security or site
        elif main is None and (tail.endswith("/debian") or release == SUITE):
            main, keyring = site, _signed_by(entry.rpartition(":")[0], site)
    if main is None:
        raise WmlceError(
            "this machine's apt configuration names no Debian mirror",
            detail=answer.lines[-3:],
            remedy=f"name one: --debian-mirror URL, or {MIRROR}=URL; its "
            f"signature is checked with the keys of the "
            f"package debian-archive-keyring. A folder with the files can "
            f"stand in: --offline DIR, or {FOLDER}=DIR",
        )
    if keyring is None and _KEYRING.is_file():
        keyring = str(_KEYRING)
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
        found = re.search(r"(?:signed-by=|^Signed-By:[ \t]*)(/[^\s\],]+)", part, re.MULTILINE)
        if site.rstrip("/") in part and found and Path(found[1]).is_file():
            return found[1]
    return None


class PrivateApt:
    """An apt state in the cache, with its own lists and configuration, for one release of Debian."""

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
        parts = [layout.apt_state.name, *([suite] if suite != SUITE else [])]
        if self.sources != (suite == SUITE):
            parts.append("src" if self.sources else "bin")
        self.folder = folder or layout.apt_state.with_name("-".join(parts))
        self.suite = suite
        self.mirror = mirror
        self.say = say

    def _parts(self, mirror: Mirror) -> list[tuple[str, str, bool]]:
        """What of the archive belongs to the release: site, suite, and whether it can be done without."""
        parts = [(mirror.main, self.suite, False)]
        if self.suite not in ROLLING:
            parts.append((mirror.main, f"{self.suite}-updates", True))
            if mirror.security:
                parts.append((mirror.security, f"{self.suite}-security", True))
        return parts

    def _configure(self, absent: set[str]) -> None:
        """Write sources.list and apt.conf; `absent`: suites that the mirror has not."""
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
        mirror = self.mirror or find_mirror()
        options = [f"signed-by={mirror.keyring}"] if mirror.keyring else []
        if mirror.permanent:
            options.append("check-valid-until=no")
        shown = f" [{' '.join(options)}]" if options else ""
        kinds = ("deb", "deb-src") if self.sources else ("deb",)
        lines = [
            f"{kind}{shown} {site} {suite} main"
            for kind in kinds
            for site, suite, _ in self._parts(mirror)
            if suite not in absent
        ]
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
        architecture = of_this_machine().debian
        own = f"""
Dir::Etc "{folder}/etc"; Dir::Etc::sourcelist "{listing}"; Dir::Etc::sourceparts "sources.list.d";
Dir::Etc::parts "apt.conf.d"; Dir::Etc::main "none"; Dir::Etc::preferences "none";
Dir::Etc::preferencesparts "preferences.d";
Dir::Etc::trusted "/etc/apt/trusted.gpg"; Dir::Etc::trustedparts "/etc/apt/trusted.gpg.d";
Dir::Etc::netrc "/etc/apt/auth.conf"; Dir::Etc::netrcparts "/etc/apt/auth.conf.d";
Dir::State "{folder}/state"; Dir::State::status "{folder}/status"; Dir::Cache "{folder}/cache";
Dir::Log "{folder}"; APT::Sandbox::User ""; APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
Acquire::Languages "none"; Acquire::Retries "3";
Acquire::AllowInsecureRepositories "false"; Acquire::AllowWeakRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false"; APT::Get::AllowUnauthenticated "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
APT::Get::Assume-Yes "true"; Debug::NoLocking "false";
"""
        write_atomic(folder / "apt.conf", "\n".join(kept) + own)

    def run(self, *arguments: str, cwd: Path | None = None, limit_s: float = 1200) -> CommandResult:
        """Run an apt command on the private state."""
        require_network("Debian's archive")
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
        name = f"{self.folder.name}.lock"
        with file_lock(self.layout.locks / name, "reading Debian's package lists", say=self.say):
            return self._update(force)

    def _update(self, force: bool) -> bool:
        absent_file = self.folder / "absent"
        self._configure(set(absent_file.read_text().split()) if absent_file.is_file() else set())
        stamp = self.folder / "updated"
        if not force and not self.stale(LISTS_AGE_S):
            return False
        self.say(f"reading Debian {self.suite}'s package lists (apt state of its own)")
        self._configure(set())
        answer = self._read_lists()
        gone = self._not_on_the_mirror(answer)
        if answer.code != 0 and gone:
            self.say(f"the mirror has no {', '.join(sorted(gone))}: revisions that are only there are missed")
            self._configure(gone)
            answer = self._read_lists()
        if answer.code != 0:
            reached = not any(word in answer.text for word in NETWORK_WORDS)
            unsigned = any(word in answer.text for word in ("not signed", "NO_PUBKEY", "signatures couldn't"))
            raise WmlceError(
                f"Debian {self.suite}'s package lists could not be read",
                detail=[line for line in answer.lines if line.startswith(("E:", "W:", "Err"))][-6:],
                remedy="only lists with Debian's signature are used: install "
                "debian-archive-keyring, or correct "
                "the mirror in apt's sources"
                if unsigned
                else "see the lines above and `wmlce doctor`"
                if reached
                else "the network or the mirror is not reachable: run `wmlce doctor`, then try again",
            )
        write_atomic(absent_file, "\n".join(sorted(gone)))
        stamp.touch()
        return True

    def _read_lists(self) -> CommandResult:
        return self.run("apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any")

    def _not_on_the_mirror(self, answer: CommandResult) -> set[str]:
        """Suites that can be done without and for which the mirror answers that it has no such thing."""
        mirror = self.mirror or find_mirror()
        return {
            suite
            for _, suite, optional in self._parts(mirror)
            if optional
            and any(f" {suite} Release' does not have a Release file" in line for line in answer.lines)
        }


def snapshot_time() -> str:
    """Now, as Debian's snapshot archive writes it, which answers with the state of that time."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def would_download(
    apt: PrivateApt, command: Sequence[str], recipe: str, before: Iterable[LockedSource]
) -> tuple[list[LockedSource], CommandResult]:
    """The files that an apt-get command (`install NAME…`, `download NAME…`) would download, as entries of a
    lock file for `recipe`, and what apt-get said.

    before: the entries until now: of those that stay, with the time at which Debian had them
    """
    options = ["--print-uris", "-qq", "-o", "Acquire::ForceHash=SHA256"]
    answer = apt.run("apt-get", command[0], *options, *command[1:])
    known = {(entry.package, entry.version): entry for entry in before if entry.snapshot}
    now = snapshot_time()
    entries = []
    for line in answer.lines:
        if found := _PRINTED.match(line.strip()):
            name, version, _ = found["file"].removesuffix(".deb").split("_", 2)
            entry = LockedSource(
                recipes=[recipe],
                kind="debian-binary",
                origin="debian",
                suite=apt.suite,
                package=name,
                version=version.replace("%3a", ":"),
                snapshot=now,
                files=[LockedFile(name=found["file"], sha256=found["sha256"])],
            )
            old = known.get((entry.package, entry.version))
            entries.append(old if old is not None and old.files == entry.files else entry)
    return entries, answer


@dataclass(frozen=True)
class Candidate:
    """One version of a package that the release offers, and its files by name with their sha256."""

    version: str
    files: Mapping[str, str]


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
    versions.sort(key=functools.cmp_to_key(compare_versions), reverse=True)
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


def compare_versions(one: str, other: str) -> int:
    """Debian's order of versions, by dpkg itself."""
    if one == other:
        return 0
    answer = run_client(
        ["dpkg", "--compare-versions", one, "gt", other], title="comparing", say=lambda _: None, limit_s=20
    )
    return 1 if answer.code == 0 else -1
