"""The machine's Debian mirrors and its settings of apt, for systems that are made from the same mirrors."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from wmlce.util.errors import WmlceError

RELEASES = ("bullseye", "bookworm", "trixie")
_SUITE = re.compile(r"^(?P<release>[a-z]+)(?P<kind>-security|-updates)?$")
_DEBIANS = {*RELEASES, "buster", "forky", "sid", "stable", "oldstable", "testing", "unstable"}
# How apt reaches archives. Everything else of apt's settings is the machine's own business.
_ACQUIRE = re.compile(r"^Acquire::(https?|Check-Valid-Until|Check-Date|Retries|ForceIPv4)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Mirrors:
    """Addresses of the archive and of its security updates (None where the machine has none)."""

    archive: str
    security: str | None

    def lines(self, release: str) -> list[str]:
        """sources.list of a release."""
        lines = [f"deb {self.archive} {release} main", f"deb {self.archive} {release}-updates main"]
        return lines + ([f"deb {self.security} {release}-security main"] if self.security else [])

    @property
    def encrypted(self) -> bool:
        """Does a system need certificates to reach them?"""
        return any(address.startswith("https:") for address in (self.archive, self.security or ""))


def configured(etc_apt: Path = Path("/etc/apt")) -> Mirrors:
    """The mirrors in the machine's sources.list and sources.list.d, as apt reads them."""
    by_kind: dict[str, str] = {}
    form = ["--no-release-info", "--format", "$(SITE) $(RELEASE)", "Created-By: Packages"]
    for line in _output("apt-get", "indextargets", f"--option=Dir::Etc={etc_apt}", *form).splitlines():
        address, _, suite = line.rpartition(" ")
        match = _SUITE.match(suite.removesuffix("/"))
        if match and match["release"] in _DEBIANS:
            by_kind.setdefault(match["kind"] or "", address)
    if "" not in by_kind:
        raise WmlceError(
            f"{etc_apt}/sources.list and sources.list.d name no mirror of Debian",
            remedy="name one: ci/bare-machine --mirror ADDRESS …",
        )
    return Mirrors(by_kind[""], by_kind.get("-security"))


def acquire_settings() -> str:
    """Proxies and the like, as the text of a file for apt.conf.d."""
    return "".join(
        f"{line}\n"
        for line in _output("apt-config", "dump").splitlines()
        if _ACQUIRE.match(line) and '""' not in line
    )


def _output(*command: str) -> str:
    """What a program of apt prints; nothing where there is none."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    except OSError:
        return ""
