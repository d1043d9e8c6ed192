"""Running a command in the build root: no network, nothing of the host but the folders that are named.

bubblewrap makes namespaces of its own for it, which needs no rights where the kernel lets users make them.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wmlce.util.errors import WmlceError
from wmlce.util.platform import of_this_machine

PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
_TRIAL_LIMIT_S = 60.0
_LIMITS = {
    "/proc/sys/user/max_user_namespaces": "0",
    "/proc/sys/kernel/unprivileged_userns_clone": "0",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1",
}
"""Settings of the kernel that forbid users to make namespaces, at these values."""


@dataclass(frozen=True)
class Sandbox:
    """What a command sees: the build root, and folders of the host by their places inside.

    root:     the unpacked build root, read-only
    writable: place inside -> folder of the host
    readable: place inside -> file or folder of the host, read-only
    folder:   where the command starts
    """

    root: Path
    writable: Mapping[str, Path] = field(default_factory=dict)
    readable: Mapping[str, Path] = field(default_factory=dict)
    folder: str = "/"

    def words(self, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` inside."""
        words = [*bubblewrap(self.root), "--unshare-all", "--unshare-user", "--die-with-parent"]
        words += ["--uid", "1000", "--gid", "1000", "--hostname", "build"]
        for entry in sorted(self.root.iterdir()):
            if entry.is_symlink():
                words += ["--symlink", os.readlink(entry), f"/{entry.name}"]
            elif any(entry.iterdir()):  # bubblewrap makes the others where something is bound to them
                words += ["--ro-bind", str(entry), f"/{entry.name}"]
        words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        # the host's /sys is not for a build to see; where the network devices would be, UCX wants a folder
        words += ["--dir", "/sys/class/net"]
        for place, folder in self.readable.items():
            words += ["--ro-bind", str(folder), place]
        for place, folder in self.writable.items():
            words += ["--bind", str(folder), place]
        return [*words, "--chdir", self.folder, "--", *command]


def bubblewrap(root: Path) -> list[str]:
    """The host's bwrap, else that of the build root, run by the build root's own loader."""
    found = shutil.which("bwrap")
    if found is not None:
        return [found]
    here = of_this_machine()
    libraries = f"{root}/lib/{here.multiarch}:{root}/usr/lib/{here.multiarch}"
    # a link, which may be absolute: meant for a system that it is the root of
    inside = Path("/", here.loader).parent / os.readlink(root / here.loader)
    loader = root / inside.relative_to("/")
    return [str(loader), "--library-path", libraries, str(root / "usr/bin/bwrap")]


def environment(**more: str) -> dict[str, str]:
    """Environment variables of a command inside: the same for every user of every host."""
    return {"PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb", "USER": "build", **more}


@functools.cache
def require(root: Path) -> None:
    """Raise WmlceError where this machine lets nobody enter the build root, with what is in the way."""
    _try(Sandbox(root).words(["/bin/true"]), environment())


def require_namespaces() -> None:
    """`require` on a machine that has no build root yet, as far as its own programs can tell."""
    unshare = shutil.which("unshare")
    if unshare is not None:
        _try([unshare, "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "true"])


def _try(words: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
    """Run a command that needs namespaces and does nothing in them."""
    try:
        answer = subprocess.run(
            words,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TRIAL_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _refused([str(error)]) from error
    if answer.returncode != 0:
        raise _refused(answer.stderr.strip().splitlines())


def _refused(said: Sequence[str]) -> WmlceError:
    return WmlceError(
        "the build root cannot be entered: bubblewrap cannot make namespaces on this machine",
        detail=[*said[-3:], *_forbidding()],
        remedy="allow user namespaces (as root: sysctl -w user.max_user_namespaces=10000; in a "
        "container: start it with them allowed), or take build/channel from another machine",
    )


def _forbidding() -> list[str]:
    found = []
    for name, value in _LIMITS.items():
        try:
            if Path(name).read_text().strip() == value:
                found.append(f"{name} is {value}")
        except OSError:
            continue
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        found.append("this is a container, whose runtime may forbid them")
    return found
