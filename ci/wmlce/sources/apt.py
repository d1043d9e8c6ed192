"""Debian's archive through apt with a state of its own: works for any user and leaves the machine's apt
alone.

The mirror, its keys and the connection settings are the machine's; the release is the caller's. Only lists
that Debian has signed are used, whatever the machine's own apt allows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from wmlce.sources.model import LockedFile, LockedSource
from wmlce.sources.settings import Settings, require_network
from wmlce.sources.signed_lists import archive_keyring
from wmlce.sources.suite import UNREACHABLE, Candidate, Mirror, Suite, Trouble, candidates, find_mirror
from wmlce.util.clients import CommandResult, run_client
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.platform import of_this_machine

NETWORK_WORDS = (
    "Could not resolve",
    "Temporary failure",
    "Could not connect",
    "Connection refused",
    "Connection timed out",
    "Connection failed",
    "Unable to connect",
)
_PRINTED = re.compile(
    r"^'[^']+' (?P<file>[A-Za-z0-9.+~_%-]+\.deb) \d+ SHA256:(?P<sha256>[0-9a-f]{64})$",
)
_COMMANDS = {
    "debian-source": ["apt-get", "source", "--download-only", "-q"],
    "debian-binary": ["apt-get", "download", "-q"],
}


class PrivateApt(Suite):
    """An apt state in the cache, with its own lists and configuration."""

    NAME = "apt"
    BY = "apt-get"

    def _mirror(self) -> Mirror:
        """The mirror with keys: a system of another distribution has none of Debian."""
        mirror = self.mirror or find_mirror()
        if mirror.keyring is None and Settings.from_environment().mirror is not None:
            return replace(mirror, keyring=str(archive_keyring(self, mirror)))
        return mirror

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
        mirror = self._mirror()
        options = [f"signed-by={mirror.keyring}"] if mirror.keyring else []
        if mirror.permanent:
            options.append("check-valid-until=no")
        option_text = f" [{' '.join(options)}]" if options else ""
        kinds = ("deb", "deb-src") if self.sources else ("deb",)
        lines = [
            f"{kind}{option_text} {site} {suite} main"
            for kind in kinds
            for site, suite, _ in self.parts(mirror)
            if suite not in absent
        ]
        content = "\n".join(lines) + "\n"
        listing = folder / "etc/sources.list"
        if not listing.is_file() or listing.read_text() != content:
            write_atomic(listing, content)
            self.forget()
        # connection settings (proxy, time-outs) are kept; hooks of the machine must not run on a private
        # state
        dump = run_client(
            ["apt-config", "dump"], title="reading apt's configuration", say=self.say, limit_s=60
        )
        connection = [
            line
            for line in dump.lines
            if line.startswith("Acquire::") and not line.startswith("Acquire::IndexT")
        ]
        architecture = of_this_machine().debian
        private = f"""
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
        write_atomic(folder / "apt.conf", "\n".join(connection) + private)

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

    def _prepare(self) -> None:
        absent_file = self.folder / "absent"
        self._configure(set(absent_file.read_text().split()) if absent_file.is_file() else set())

    def _read(self) -> None:
        self._configure(set())
        answer = self._read_lists()
        gone = self._not_on_the_mirror(answer)
        if answer.code != 0 and gone:
            self._say_absent(gone)
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
                else UNREACHABLE,
            )
        write_atomic(self.folder / "absent", "\n".join(sorted(gone)))

    def _read_lists(self) -> CommandResult:
        return self.run("apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any")

    def _not_on_the_mirror(self, answer: CommandResult) -> set[str]:
        """Suites that can be done without and for which the mirror answers that it has no such thing."""
        return {
            suite
            for _, suite, optional in self.parts(self.mirror or find_mirror())
            if optional
            and any(f" {suite} Release' does not have a Release file" in line for line in answer.lines)
        }

    def offers(self, kind: str, package: str) -> list[Candidate]:
        command = ["showsrc", "--only-source"] if kind == "debian-source" else ["show", "--all-versions"]
        answer = self.run("apt-cache", *command, package, limit_s=120)
        return candidates((("", text) for text in answer.text.split("\n\n")), kind, package)

    def download(
        self, kind: str, versions: Sequence[tuple[str, str]], names: Collection[str], folder: Path
    ) -> Trouble | None:
        specs = [f"{package}={version}" for package, version in versions]
        answer = self.run(*_COMMANDS[kind], *specs, cwd=folder)
        if not any(word in answer.text for word in NETWORK_WORDS):
            return None
        lines = [line for line in answer.lines if line.startswith(("E:", "Err"))]
        return Trouble(lines[-6:], UNREACHABLE)


def snapshot_time() -> str:
    """Now, as Debian's snapshot archive writes it, which answers with the state of that time."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def as_locked(
    suite: str, recipe: str, packages: Iterable[tuple[str, str, str, str]], before: Iterable[LockedSource]
) -> list[LockedSource]:
    """Binary packages (name, version, file, sha256) as entries of a lock file for `recipe`.

    before: the entries until now: of those that stay, with the time at which Debian had them
    """
    with_snapshot = {(entry.package, entry.version): entry for entry in before if entry.snapshot}
    now = snapshot_time()
    entries = []
    for package, version, file, sha256 in packages:
        old = with_snapshot.get((package, version))
        entry = LockedSource(
            recipes=[recipe],
            kind="debian-binary",
            origin="debian",
            suite=suite,
            package=package,
            version=version,
            snapshot=now,
            files=[LockedFile(name=file, sha256=sha256)],
        )
        entries.append(old if old is not None and old.files == entry.files else entry)
    return entries


def would_install(
    apt: PrivateApt, names: Sequence[str]
) -> tuple[list[tuple[str, str, str, str]], CommandResult]:
    """The packages (name, version, file, sha256) that apt-get would install, and what it said."""
    options = ["--print-uris", "-qq", "-o", "Acquire::ForceHash=SHA256", "--no-install-recommends"]
    answer = apt.run("apt-get", "install", *options, *names)
    packages = []
    for line in answer.lines:
        if printed := _PRINTED.match(line.strip()):
            name, version, _ = printed["file"].removesuffix(".deb").split("_", 2)
            packages.append((name, version.replace("%3a", ":"), printed["file"], printed["sha256"]))
    return packages, answer
