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
    """The mirrors in the machine's sources.list and sources.list.d."""
    by_kind: dict[str, str] = {}
    for address, suite in _entries(etc_apt):
        match = _SUITE.match(suite.removesuffix("/"))
        if match and match["release"] in _DEBIANS:
            by_kind.setdefault(match["kind"] or "", address)
    if "" not in by_kind:
        raise WmlceError(
            f"{etc_apt}/sources.list and sources.list.d name no mirror of Debian",
            remedy="name one: ci/bare-machine --mirror ADDRESS …",
        )
    return Mirrors(by_kind[""], by_kind.get("-security"))


def _entries(etc_apt: Path) -> list[tuple[str, str]]:
    """(address, suite) of every enabled source of binary packages."""
    entries: list[tuple[str, str]] = []
    folder = etc_apt / "sources.list.d"
    for file in [etc_apt / "sources.list", *sorted(folder.glob("*.list"))]:
        for line in _read(file).splitlines():
            columns = re.sub(r"\[[^\]]*\]", "", line.split("#")[0]).split()
            if len(columns) >= 3 and columns[0] == "deb":
                entries.append((columns[1], columns[2]))
    for file in sorted(folder.glob("*.sources")):
        for paragraph in re.split(r"\n\s*\n", _read(file)):
            fields = _fields(paragraph)
            if "deb" in fields.get("types", "").split() and fields.get("enabled", "yes").lower() != "no":
                addresses, suites = fields.get("uris", "").split(), fields.get("suites", "").split()
                entries += [(address, suite) for address in addresses for suite in suites]
    return entries


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _fields(paragraph: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in paragraph.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace():
            fields[name] = f"{fields.get(name, '')} {line.strip()}"
        else:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def acquire_settings() -> str:
    """Proxies and the like, as the text of a file for apt.conf.d."""
    try:
        run = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return ""
    return "".join(
        f"{line}\n" for line in run.stdout.splitlines() if _ACQUIRE.match(line) and '""' not in line
    )
