"""Systems of other distributions, each emulated on Debian's files by what makes it special to this project:
its os-release, its Python, whether it has apt and whose, where its certificates are, what its kernel allows.

They are no such systems: C library and programs are Debian's. What the project asks a system for is there, or
absent, as it is on the system that is named.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wmlce.util.errors import WmlceError

from bare_machine.settings import CERTIFICATE_VARIABLES, Settings
from bare_machine.system import BareSystem, Ended, User
from bare_machine.trial import MESSAGE_LIMIT_S, ORDINARY_USER, Trial

RECIPE = "xz"
"""Built from its Debian source on each of them, in the build root."""
_HIDDEN = "/var/tmp/not-installed-yet"
_STOPPED = Path(__file__).with_name("deny_namespaces.py")
_KERNEL = "/proc/sys/kernel"
_APPARMOR = "apparmor_restrict_unprivileged_userns"
_APT = (
    "usr/bin/apt*",
    "usr/bin/dpkg*",
    "usr/lib/apt",
    "usr/lib/dpkg",
    "etc/apt",
    "var/lib/apt",
    "var/lib/dpkg",
)
_KEYS = ("usr/share/keyrings/debian-*", "etc/apt/trusted.gpg.d/debian-*", "etc/apt/sources.list*")
_END = "-----END CERTIFICATE-----\n"
Forbidden = Literal["", "container", "apparmor"]


@dataclass(frozen=True)
class OtherSystem:
    """base: the Debian release whose files it has. own_python: what its `python3` says of itself, where that
    is too old; the one that fits is then beside it. installer: how its user is told to install; of a system
    with apt the command of Debian. forbidden: what keeps ordinary users, or in a container everybody, from
    making namespaces
    """

    base: str
    os_release: str
    installer: str
    certificates: str = "/etc/ssl/certs/ca-certificates.crt"
    own_python: str = ""
    apt: str = ""
    forbidden: Forbidden = ""

    def means(self) -> str:
        """In words, for the table."""
        number = "3.13" if self.base == "trixie" else "3.11"
        python = (
            f"`python3` {self.own_python}, Python {number} beside it"
            if self.own_python
            else f"Python {number}"
        )
        parts = [
            python,
            f"apt of the suite {self.apt}, without Debian's keys" if self.apt else "no apt, no dpkg",
        ]
        if not self.certificates.startswith("/etc/ssl/certs/"):
            parts.append(f"certificates in `{self.certificates}`")
        if self.forbidden == "apparmor":
            parts.append("AppArmor's switch, and seccomp in its place, until root turns it")
        if self.forbidden == "container":
            parts.append("a container whose seccomp filter forbids namespaces")
        return f"Debian {self.base}'s files; {'; '.join(parts)}"


_RPM = "/etc/pki/tls/certs/ca-bundle.crt"
SYSTEMS = {
    "ubuntu-22.04": OtherSystem(
        "bookworm",
        "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=22.04",
        "apt-get install",
        own_python="3.10.12",
        apt="jammy",
    ),
    "ubuntu-24.04": OtherSystem(
        "trixie",
        "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=24.04",
        "apt-get install",
        apt="noble",
        forbidden="apparmor",
    ),
    "rhel-8": OtherSystem(
        "bookworm", "ID=rhel\nID_LIKE=fedora\nVERSION_ID=8.10", "dnf install", _RPM, own_python="3.6.8"
    ),
    "rhel-9": OtherSystem(
        "bookworm", "ID=rhel\nID_LIKE=fedora\nVERSION_ID=9.6", "dnf install", _RPM, own_python="3.9.21"
    ),
    "sles-15": OtherSystem(
        "bookworm",
        "ID=sles\nID_LIKE=suse\nVERSION_ID=15.6",
        "zypper install",
        "/var/lib/ca-certificates/ca-bundle.pem",
        own_python="3.6.15",
    ),
    "fedora": OtherSystem("trixie", "ID=fedora\nVERSION_ID=43", "dnf install", _RPM),
    "arch": OtherSystem("trixie", "ID=arch", "pacman -S --needed", "/etc/ssl/cert.pem"),
    "no-namespaces": OtherSystem(
        "bookworm", "ID=debian\nVERSION_ID=12", "apt-get install", apt="bookworm", forbidden="container"
    ),
}
TRIALS = [(name, user) for name in SYSTEMS for user in ("root", ORDINARY_USER)]


class OtherTrial(Trial):
    """./ci/quickstart there, with packages from the machine's cache; but a package is built from its Debian
    source, in a build root of Debian's packages.
    """

    @property
    def _other(self) -> OtherSystem:
        return SYSTEMS[self._conditions.release]

    def _make(self) -> None:
        other, conditions = self._other, self._conditions
        python = "python3" if other.base == "trixie" else "python3.11"
        packages = [python, f"{python}-venv", "git", "ca-certificates"]
        # one for all that have the same files
        base = BareSystem(self._system.folder.with_name(f"base-{other.base}"), Settings(), self._say)
        if not base.complete:
            base.make(other.base, conditions.mirrors, packages)
        self._system.copy(base)
        emulate(other, self._system, hidden=not other.apt)

    def _steps(self) -> None:
        other, mirror = self._other, self._conditions.mirrors.archive
        variables = {"WMLCE_DEBIAN_MIRROR": mirror, "LANG": "" if not other.apt else "C.UTF-8"}
        self._system.settings.environment |= variables
        user = self._system.user(self._conditions.user)
        folder = self._system.bring_clone(user, uncommitted=self._conditions.uncommitted)
        if not other.apt:
            self._step("quickstart names packages", lambda: self._named(user, folder))
        if other.forbidden == "container" or (other.forbidden and user.uid != 0):
            self._step("quickstart refuses", lambda: self._refused(user, folder))
        if other.forbidden == "container":
            return
        build = (
            f'"$WMLCE" build-root make && "$WMLCE" channel build {RECIPE} && "$WMLCE" source fetch {RECIPE}'
        )
        self._step(
            "from Debian's sources",
            lambda: self._bash(user, folder, f". ci/bootstrap.sh && bootstrap build && {build}"),
        )
        home_cache = self._system.outside(f"{user.home}/.cache/wmlce")
        self._step("packages from the cache", lambda: self._take_packages(user, folder, home_cache))
        self._step("quickstart", lambda: self._quickstart(user, folder))

    def _told(
        self,
        user: User,
        folder: str,
        binds: Mapping[Path, str] | None = None,
        before: Sequence[str] = (),
    ) -> Ended:
        ended = self._system.run(
            ["./ci/quickstart"],
            user,
            limit_s=MESSAGE_LIMIT_S,
            log=self._log,
            folder=folder,
            binds=binds,
            before=before,
        )
        if ended.code != 1 or ended.output.count("error: ") != 1 or "remedy: " not in ended.output:
            raise self._unexpected("end with one error that says what to do", ended)
        return ended

    def _unexpected(self, expectation: str, ended: Ended) -> WmlceError:
        return WmlceError(
            f"{self._conditions.name}: ./ci/quickstart should {expectation}, but exited with code "
            f"{ended.code}",
            detail=ended.output.splitlines()[-8:],
            log=self._log,
        )

    def _named(self, user: User, folder: str) -> None:
        """What is missing, and the system's own command for it; then that is installed."""
        ended = self._told(user, folder)
        if not re.search(rf"remedy: sudo {re.escape(self._other.installer)} git python\S*\. ", ended.output):
            raise self._unexpected(f"name a command of {self._other.installer}", ended)
        for file in self._system.outside(_HIDDEN).iterdir():
            shutil.move(file, self._system.outside("/usr/bin") / file.name)

    def _refused(self, user: User, folder: str) -> None:
        """Nothing is fetched, and the option that would give namespaces is named."""
        container = self._other.forbidden == "container"
        kernel = self._system.folder.with_name(f"{self._system.folder.name}.kernel")
        if not container:
            shutil.rmtree(kernel, ignore_errors=True)
            kernel.mkdir()
            (kernel / _APPARMOR).write_text("1\n")
        binds = {} if container else {kernel: _KERNEL}
        ended = self._told(user, folder, binds, ["python3", str(_STOPPED)])
        shutil.rmtree(kernel, ignore_errors=True)
        remedy = "--security-opt seccomp=unconfined" if container else f"sysctl -w kernel.{_APPARMOR}=0"
        if remedy not in ended.output or self._system.outside(f"{folder}/build/tools").exists():
            raise self._unexpected(f"name {remedy} before it makes anything", ended)


def emulate(other: OtherSystem, system: BareSystem, *, hidden: bool) -> None:
    """Make of a Debian in a folder what it stands for. hidden: its git and Python are yet to be installed"""
    root = system.folder
    (root / "etc/os-release").unlink(missing_ok=True)
    (root / "etc/os-release").write_text(f"{other.os_release}\n")
    for pattern in _KEYS if other.apt else (*_KEYS, *_APT):
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if other.apt and other.forbidden != "container":
        listing = f"deb http://ubuntu.invalid/ubuntu {other.apt} main universe\n"
        (root / "etc/apt/sources.list").write_text(listing)
    _move_certificates(other, root, system.settings)
    python = root / "usr/bin/python3"
    real = next((root / "usr/bin").glob("python3.1[0-9]"))
    if other.own_python:
        python.unlink()
        # whoever calls it for more than its version is told: nothing may depend on it
        says = f'[ "$1" = --version ] && exec echo Python {other.own_python}'
        python.write_text(f"#!/bin/sh\n{says}\necho 'python3 is {other.own_python} here' >&2; exit 1\n")
        python.chmod(0o755)
    if hidden:
        away = system.outside(_HIDDEN)
        away.mkdir(parents=True)
        for file in [root / "usr/bin/git", *([real] if other.own_python else [real, python])]:
            shutil.move(file, away / file.name)
    if other.forbidden == "container":
        (root / ".dockerenv").touch()


def _move_certificates(other: OtherSystem, root: Path, settings: Settings) -> None:
    """To where that system has them, together with those that the machine itself trusts."""
    debian = root / "etc/ssl/certs/ca-certificates.crt"
    text = debian.read_text()
    named = [name for name in CERTIFICATE_VARIABLES if name in settings.environment]
    for name in named:
        text += (root / settings.environment[name].lstrip("/")).read_text()
    place = root / other.certificates.lstrip("/")
    if place != debian:
        shutil.rmtree(debian.parent)
        if other.base == "trixie":
            # The pip of this Debian ends where the file is absent, although it is then told of another. One
            # authority alone lets it start; whoever relies on the file finds no server to trust.
            debian.parent.mkdir()
            debian.write_text("".join(text.partition(_END)[:2]))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    for name in named:
        settings.environment[name] = other.certificates
    pip = root / "etc/pip.conf"
    if pip.is_file():
        pip.write_text(re.sub(r"(?m)^(cert\s*=\s*).*$", rf"\g<1>{other.certificates}", pip.read_text()))
