"""Platforms: what conda, Debian, wheels, ELF files and the kernel call each, in one place.

Nothing else names a machine. What depends on one asks `of_this_machine()`, or takes a `Platform`.
"""

from __future__ import annotations

import functools
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from wmlce.util.errors import WmlceError

Subdir = Literal["linux-64", "linux-aarch64", "linux-ppc64le"]
NOARCH: Literal["noarch"] = "noarch"
"""conda's folder of packages for every platform."""
TARGET_GLIBC = 28
"""Wheels are chosen for glibc 2.28, whatever the machine that locks them has."""
_WHEEL = re.compile(r"-(?P<tags>[^-]+)\.whl$")


@dataclass(frozen=True)
class Platform:
    """One kind of machine, with glibc.

    subdir:    conda's name, which is also the folder of its packages
    machine:   the kernel's name (`uname -m`), and that of wheels
    spoken:    for people
    debian:    Debian's architecture
    multiarch: Debian's folder of libraries
    loader:    the dynamic loader, which an executable names
    elf:       the machine that an ELF file states
    oci:       the architecture of images
    manylinux: wheels' older names of systems, besides manylinux_2_N
    """

    subdir: Subdir
    machine: str
    spoken: str
    debian: str
    multiarch: str
    loader: str
    elf: str
    oci: str
    manylinux: tuple[str, ...] = ("manylinux2014",)

    @property
    def subdirs(self) -> tuple[Subdir, Literal["noarch"]]:
        """The folders of a channel that a machine of it takes packages from."""
        return self.subdir, NOARCH

    @property
    def loader_name(self) -> str:
        return self.loader.rpartition("/")[2]

    def wheel_tags(self, glibc: int = TARGET_GLIBC) -> list[str]:
        """What wheels may be made for, the newest glibc first. glibc: the minor version"""
        return [
            *(f"manylinux_2_{minor}_{self.machine}" for minor in range(glibc, 4, -1)),
            *(f"{name}_{self.machine}" for name in (*self.manylinux, "linux")),
        ]

    def variables(self) -> dict[str, str]:
        """What recipes may say in place of its names: `${{ multiarch }}`."""
        return {
            "debian_architecture": self.debian,
            "loader_name": self.loader_name,
            "machine": self.machine,
            "multiarch": self.multiarch,
        }


PLATFORMS: dict[str, Platform] = {
    entry.subdir: entry
    for entry in (
        Platform(
            "linux-64",
            "x86_64",
            "x86-64",
            "amd64",
            "x86_64-linux-gnu",
            "lib64/ld-linux-x86-64.so.2",
            "EM_X86_64",
            "amd64",
            ("manylinux2014", "manylinux2010", "manylinux1"),
        ),
        Platform(
            "linux-aarch64",
            "aarch64",
            "Arm (aarch64)",
            "arm64",
            "aarch64-linux-gnu",
            "lib/ld-linux-aarch64.so.1",
            "EM_AARCH64",
            "arm64",
        ),
        Platform(
            "linux-ppc64le",
            "ppc64le",
            "POWER (ppc64le)",
            "ppc64el",
            "powerpc64le-linux-gnu",
            "lib64/ld64.so.2",
            "EM_PPC64",
            "ppc64le",
        ),
    )
}
"""By conda's name."""
SUBDIRS = (*PLATFORMS, NOARCH)
"""Every folder that a channel may have."""


def find(subdir: str) -> Platform:
    """The platform that conda calls so."""
    if subdir not in PLATFORMS:
        raise WmlceError(
            f"{subdir} is not a platform that wmlce supports", remedy=f"there are: {', '.join(PLATFORMS)}"
        )
    return PLATFORMS[subdir]


def of_machine(system: str, machine: str) -> Platform | None:
    """The platform of a machine, by what `uname` reports; None if it is not supported."""
    by_machine = {entry.machine: entry for entry in PLATFORMS.values()}
    return by_machine.get(machine) if system == "Linux" else None


@functools.cache
def of_this_machine() -> Platform:
    """The platform of this machine."""
    system, machine = platform.system(), platform.machine()
    entry = of_machine(system, machine)
    if entry is None:
        names = ", ".join(candidate.machine for candidate in PLATFORMS.values())
        raise WmlceError(
            f"this is {system} on {machine}, of which wmlce knows nothing",
            remedy=f"use Linux on one of {names}",
        )
    return entry


def of_files(names: Iterable[str]) -> list[Platform]:
    """The platforms that wheels or Debian packages with compiled code are for, by the names of the files."""
    matching = set()
    for name in names:
        wheel = _WHEEL.search(name)
        tags = wheel["tags"].split(".") if wheel else []
        for candidate in PLATFORMS.values():
            if any(tag.endswith(f"_{candidate.machine}") for tag in tags) or name.endswith(
                f"_{candidate.debian}.deb"
            ):
                matching.add(candidate)
    return [candidate for candidate in PLATFORMS.values() if candidate in matching]


def require_locked(names: Iterable[str]) -> None:
    """Raise WmlceError where what is locked is for other machines than this one. names: of the files"""
    machine, locked = of_this_machine(), of_files(names)
    if locked and machine not in locked:
        raise WmlceError(
            f"the lock files are for {', '.join(entry.subdir for entry in locked)}; "
            f"this machine is {machine.subdir}",
            remedy="lock for it here (wmlce lock build-root, sources, wheels), "
            f"after: wmlce channel plan --platform {machine.subdir}",
        )
