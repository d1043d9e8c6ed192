"""What the machine must offer, each missing thing named with its remedy."""

import os
import shutil
import subprocess
from collections.abc import Mapping

# program -> Debian package
_PROGRAMS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
}
#: Options of unshare that make what is a host's own.
HOST_NAMESPACES = [
    *("--net", "--uts", "--ipc", "--mount", "--pid", "--fork"),
    *("--kill-child", "--propagation", "private"),
]
_SEARCH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"])


def program(name: str) -> str:
    """Absolute path of a program; administration tools are found although sbin is not on the PATH."""
    return shutil.which(name, path=_SEARCH) or name


def missing_programs(packages: Mapping[str, str]) -> list[str]:
    """A line for each program that is not there, with its Debian package."""
    return [
        f"{name} not found (Debian package {package})"
        for name, package in packages.items()
        if shutil.which(name, path=_SEARCH) is None
    ]


def missing_requirements() -> list[str]:
    """Reasons why no cluster can be started here; an empty list when it can."""
    reasons = missing_programs(_PROGRAMS)
    if reasons:
        return reasons
    # Only trying tells: a container's root may lack CAP_SYS_ADMIN, and a seccomp filter may forbid unshare.
    command = [program("unshare"), *HOST_NAMESPACES, program("mount"), *["-t", "tmpfs", "tmpfs", "/run"]]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if tried.returncode:
        return [f"namespaces cannot be made: {tried.stderr.strip()} (root with CAP_SYS_ADMIN is needed)"]
    return []
