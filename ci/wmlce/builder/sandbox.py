"""Running a command in the build root: no network, nothing of the host but the folders that are named.

bubblewrap makes namespaces of its own for it, which needs no rights where the kernel lets users make them.
`python -m wmlce.builder.sandbox` says whether it does; ci/bootstrap.sh runs it before there are libraries.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wmlce.util.errors import WmlceError
from wmlce.util.platform import of_this_machine

PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
_TRIAL_LIMIT_S = 60.0
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
_KERNEL = Path("/proc/sys")


@dataclass(frozen=True)
class _Limit:
    """A setting of the kernel that forbids to make namespaces, at the value `at`. root: to root, too"""

    name: str
    at: str
    better: str
    root: bool = False


_LIMITS = (
    _Limit("user.max_user_namespaces", "0", "10000", root=True),
    _Limit("kernel.unprivileged_userns_clone", "0", "1"),
    _Limit("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)


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

    def command_line(
        self, command: Sequence[str], *, info: int | None = None, new_session: bool = False
    ) -> list[str]:
        """The command line that runs `command` inside.

        info: descriptor for the number of its first process, as JSON
        new_session: for a command that has a terminal of the user's: it cannot type there
        """
        arguments = [*bubblewrap(self.root), "--unshare-all", "--unshare-user", "--die-with-parent"]
        arguments += ["--info-fd", str(info)] if info is not None else []
        arguments += ["--new-session"] if new_session else []
        arguments += ["--uid", "1000", "--gid", "1000", "--hostname", "build"]
        for entry in sorted(self.root.iterdir()):
            if entry.is_symlink():
                arguments += ["--symlink", os.readlink(entry), f"/{entry.name}"]
            elif any(entry.iterdir()):  # bubblewrap makes the others where something is bound to them
                arguments += ["--ro-bind", str(entry), f"/{entry.name}"]
        arguments += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        # the host's /sys is not for a build to see; where the network devices would be, UCX wants a folder
        arguments += ["--dir", "/sys/class/net"]
        binds = [(place, "--ro-bind", folder) for place, folder in self.readable.items()]
        binds += [(place, "--bind", folder) for place, folder in self.writable.items()]
        # one that lies in another comes after it
        for place, option, folder in sorted(binds, key=lambda bind: len(Path(bind[0]).parts)):
            arguments += [option, str(folder), place]
        return [*arguments, "--chdir", self.folder, "--", *command]


def bubblewrap(root: Path) -> list[str]:
    """The host's bwrap, else that of the build root, run by the build root's own loader."""
    program = shutil.which("bwrap")
    if program is not None:
        return [program]
    machine = of_this_machine()
    libraries = f"{root}/lib/{machine.multiarch}:{root}/usr/lib/{machine.multiarch}"
    # a link, which may be absolute: meant for a system that it is the root of
    inside = Path("/", machine.loader).parent / os.readlink(root / machine.loader)
    loader = root / inside.relative_to("/")
    return [str(loader), "--library-path", libraries, str(root / "usr/bin/bwrap")]


def environment(**more: str) -> dict[str, str]:
    """Environment variables of a command inside: the same for every user of every host."""
    return {"PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb", "USER": "build", **more}


def can_type_into_terminals() -> bool:
    """Whether this kernel lets a program put input into its terminal, for the shell that started it."""
    try:
        return (_KERNEL / "dev/tty/legacy_tiocsti").read_text().strip() != "0"
    except OSError:
        return True  # before Linux 6.2


@functools.cache
def require(root: Path) -> None:
    """Raise WmlceError where this machine lets nobody enter the build root, with what is in the way."""
    _try(Sandbox(root).command_line(["/bin/true"]), environment())


def require_early(root: Path) -> None:
    """The same before the build root may have been made."""
    if root.is_dir():
        require(root)
    else:
        require_namespaces()


def require_namespaces() -> None:
    """`require` on a machine that has no build root yet, as far as its own programs can tell."""
    if bwrap := shutil.which("bwrap"):
        command = [bwrap, "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000"]
        _try([*command, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "true"])
    elif unshare := shutil.which("unshare"):
        command = [unshare, "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork"]
        _try([*command, "--mount-proc", "true"])


def _try(command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
    """Run a command that needs namespaces and does nothing in them."""
    try:
        answer = subprocess.run(
            command,
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


def _refused(output: Sequence[str]) -> WmlceError:
    limits = _forbidding()
    detail = [*output[-3:], *(f"{limit.name} is {limit.at}" for limit in limits)]
    if limits:
        assignments = " ".join(f"{limit.name}={limit.better}" for limit in limits)
        remedy = (
            f"allow user namespaces, as root: sysctl -w {assignments} (to keep it, a file in /etc/sysctl.d)"
        )
    elif any(os.path.exists(mark) for mark in _CONTAINER_MARKS):
        detail.append("this is a container, whose runtime forbids them")
        remedy = (
            "start the container with user namespaces allowed: --security-opt seccomp=unconfined and "
            "--security-opt systempaths=unconfined (Docker) or unmask=ALL (Podman), or with --privileged"
        )
    else:
        remedy = "allow user namespaces (if this is a container, by its runtime's seccomp profile)"
    return WmlceError(
        "the build root cannot be entered: bubblewrap cannot make namespaces on this machine",
        detail=detail,
        remedy=f"{remedy}; or take build/channel from another machine",
    )


def _forbidding() -> list[_Limit]:
    """The settings that are in this user's way."""
    forbidding = []
    for limit in _LIMITS:
        try:
            value = (_KERNEL / limit.name.replace(".", "/")).read_text().strip()
        except OSError:
            continue
        if value == limit.at and (limit.root or os.geteuid() != 0):
            forbidding.append(limit)
    return forbidding


if __name__ == "__main__":
    try:
        require_namespaces()
    except WmlceError as error:
        sys.exit(f"\nerror: {error}")
