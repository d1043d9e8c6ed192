"""The process that keeps a host's (or the fabric's) namespaces alive: pid 1 of the host.

Run as ``python -m ddl_validate.cluster.holder SETTINGS.json`` below unshare. It makes the host's private
mounts, reports its pid as the machine sees it, reaps what the host's processes leave behind, and ends after
its life - and with it the kernel ends every process of the host and removes its interfaces.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .requirements import program


def _mount(*arguments: str) -> None:
    subprocess.run([program("mount"), *arguments], check=True, timeout=20)


def _show_own_interfaces(staging: Path) -> None:
    """/sys shows the interfaces of the network namespace it was mounted in. A new one over all of it would
    hide what else is mounted there (cgroups), so only its parts about interfaces are laid over the old.
    """
    fresh = staging / ".sys"
    fresh.mkdir()
    _mount("-t", "sysfs", "sysfs", str(fresh))
    for part in ("class/net", "devices/virtual/net"):
        _mount("--bind", str(fresh / part), f"/sys/{part}")
    subprocess.run([program("umount"), str(fresh)], check=True, timeout=20)
    fresh.rmdir()


def _make_mounts(settings: dict[str, Any]) -> None:
    """Everything private to a host. /tmp comes last: the shared folders below it are bound from the old
    one.
    """
    staging = Path(settings["staging"])
    staging.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(staging))
    for path in settings["shared"]:
        inside = staging / Path(path).relative_to("/tmp")
        inside.mkdir(parents=True, exist_ok=True)
        _mount("--bind", path, str(inside))
    _mount("-t", "proc", "proc", "/proc")
    _show_own_interfaces(staging)
    size = f",size={settings['shm_bytes']}" if settings["shm_bytes"] else ""
    _mount("-t", "tmpfs", "-o", f"mode=1777{size}", "tmpfs", "/dev/shm")
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for name in ("sshd", "lock", "munge"):
        Path("/run", name).mkdir()
    for source, target in settings["binds"]:
        _mount("--bind", source, target)
    _mount("--rbind", str(staging), "/tmp")
    for path in settings["hidden"]:
        _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", path)


def _wait(life_seconds: float, lifeline: int | None) -> None:
    """Return when the life is over or the owner is gone (its end of the pipe closed). Meanwhile reap
    orphans.
    """
    end = time.monotonic() + life_seconds
    poll = select.poll()
    if lifeline is not None:
        poll.register(lifeline, select.POLLHUP)
    while (remaining := end - time.monotonic()) > 0:
        if poll.poll(min(remaining, 0.5) * 1000):
            return
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            pass


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = json.loads(Path(sys.argv[1]).read_text())
    outside_pid = int(os.readlink("/proc/self"))  # /proc is still the machine's
    report = Path(settings["report"])
    draft = report.with_suffix(".new")
    if settings["is_host"]:
        socket.sethostname(settings["name"])
        draft.touch()
        handle = draft.open("w")  # the path may be hidden by the host's own /tmp in a moment
        _make_mounts(settings)
        subprocess.run([program("ip"), "link", "set", "lo", "up"], check=True, timeout=20)
    else:
        handle = draft.open("w")
    with handle:
        handle.write(str(outside_pid))
    draft.rename(report)
    _wait(settings["life_seconds"], settings["lifeline"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
