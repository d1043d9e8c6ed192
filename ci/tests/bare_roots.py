"""Minimal Debian systems to install into: nothing but what a release brings, no network, an ordinary user."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tree import ROOT
from wmlce.util.files import scratch_beside
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock

RELEASES = ("bullseye", "bookworm", "trixie")
"""glibc 2.31, 2.36 and 2.41."""
USER_ID = 1000
_HOME = Path("/home/user")
_MAKE_LIMIT_S = 900
# $1 is the system, $2 its user's home, $3 the size of /mnt; the rest is the command. There is loopback, as on
# any machine, and no other network. The shell stays as the first process, which dies with the one that made
# it: whoever becomes the user forgets that order.
_ENTER = """
set -e
system=$1 home=$2 small=$3
shift 3
ip link set lo up
mount -t proc proc "$system/proc"
mount --rbind /dev "$system/dev"
mount -t sysfs -o ro sysfs "$system/sys"
mount -t tmpfs -o mode=1777 tmpfs "$system/tmp"
mount --bind "$home" "$system/home/user"
mount -t tmpfs -o "mode=1777,size=$small" tmpfs "$system/mnt"
chroot --userspec=1000:1000 --groups=1000 "$system" "$@"
exit $?
"""


@dataclass(frozen=True)
class BareSystem:
    """release: of Debian. root: its files. home: the folder that its only user has as his home."""

    release: str
    root: Path
    home: Path

    def command(
        self,
        *words: object,
        env: Mapping[str, str] | None = None,
        cwd: Path = _HOME,
        small: str = "1m",
    ) -> list[str]:
        """The words that run a command in the system, as its user. small: size of the file system /mnt."""
        variables = {
            "HOME": str(_HOME),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
        }
        inside = ["env", "-i", "-C", str(cwd), *(f"{k}={v}" for k, v in {**variables, **(env or {})}.items())]
        # a process namespace of its own: whatever the command leaves running ends with it
        unshared = ["unshare", "--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child"]
        return [
            *unshared, "bash", "-c", _ENTER, "enter", str(self.root), str(self.home), small,
            *inside, *map(str, words),
        ]  # fmt: skip

    def run(
        self,
        *words: object,
        env: Mapping[str, str] | None = None,
        cwd: Path = _HOME,
        small: str = "1m",
        limit: float = 300,
        answers: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. answers: its standard input."""
        return subprocess.run(
            self.command(*words, env=env, cwd=cwd, small=small),
            input=answers,
            stdin=None if answers is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
        )

    def shell(self, script: str, **options: float) -> subprocess.CompletedProcess[str]:
        """Run a script of its own shell."""
        return self.run("sh", "-euc", script, limit=options.get("limit", 300))


def bare_system(release: str, home: Path) -> BareSystem:
    """A system of this release, made once and kept in the cache; skips where none can be had."""
    if os.geteuid() != 0:
        pytest.skip("a bare system is made and entered by root")
    for program, package in (("mmdebstrap", "mmdebstrap"), ("unshare", "util-linux"), ("ip", "iproute2")):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is missing: apt-get install {package}")
    home.mkdir(parents=True, exist_ok=True)
    os.chown(home, USER_ID, USER_ID)
    return BareSystem(release, _root(release), home)


def _root(release: str) -> Path:
    layout = Layout.locate(ROOT)
    folder = layout.cache / "bare-systems" / release
    with file_lock(layout.locks / f"bare-{release}.lock", f"making a bare {release}", say=print):
        if not folder.is_dir():
            with scratch_beside(folder) as scratch:
                made = scratch / "root"
                _make(release, made)
                made.rename(folder)
    return folder


def _make(release: str, target: Path) -> None:
    archive, security = _mirrors()
    lines = [f"deb {archive} {release} main", f"deb {archive} {release}-updates main"]
    lines += [f"deb {security} {release}-security main"] if security else []
    hooks = [
        # how this machine reaches its mirrors, for the time of the making
        'mkdir -p "$1"/etc/apt/apt.conf.d && cp /etc/apt/apt.conf.d/99* "$1"/etc/apt/apt.conf.d/ || true',
        f'chroot "$1" useradd --create-home --uid {USER_ID} --shell /bin/sh user',
    ]
    done = subprocess.run(
        ["mmdebstrap", "--variant=minbase", f"--setup-hook={hooks[0]}", f"--customize-hook={hooks[1]}",
         release, str(target), "-"],
        input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=_MAKE_LIMIT_S,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.skip(f"no bare {release} can be made here: {done.stderr[-400:].strip()}")


def _mirrors() -> tuple[str, str | None]:
    """Addresses of Debian's archive and of its security updates, as this machine's apt has them."""
    found: dict[bool, str] = {}
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)"]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    for line in answer.splitlines():
        address, suite = [*line.split(), "", ""][:2]
        if re.match(r"(bullseye|bookworm|trixie)(-security)?$", suite):
            found.setdefault(suite.endswith("-security"), address)
    if False not in found:
        pytest.skip("apt names no mirror of Debian: apt-get update")
    return found[False], found.get(True)
