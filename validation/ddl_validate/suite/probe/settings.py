"""`python -m …probe.settings [--root DIR]`: this host's settings, as far as an ordinary user can read them.

Needs the standard library alone: kernel and firmware, limits, mounts of shared file systems, the clock,
errors of memory, and processes that use its cores. What cannot be read is None.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import pwd
import re
import sys
import time
from pathlib import Path
from typing import Any

from .. import occupied
from .lines import tell

_FILES = {
    "kernel": "proc/sys/kernel/osrelease",
    "clock-source": "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "transparent-hugepages": "sys/kernel/mm/transparent_hugepage/enabled",
    "hugepage-defragmentation": "sys/kernel/mm/transparent_hugepage/defrag",
    "hugepages": "proc/sys/vm/nr_hugepages",
    "swappiness": "proc/sys/vm/swappiness",
    "zone-reclaim": "proc/sys/vm/zone_reclaim_mode",
    "numa-balancing": "proc/sys/kernel/numa_balancing",
    "frequency-governor": "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "boost": "sys/devices/system/cpu/cpufreq/boost",
    "no-turbo": "sys/devices/system/cpu/intel_pstate/no_turbo",
    "hardware-threads": "sys/devices/system/cpu/smt/active",
    "firmware": "sys/class/dmi/id/bios_version",
}
_LIMITS = {"memlock": "Max locked memory", "nofile": "Max open files", "stack": "Max stack size"}
_TIME_SERVICES = ("chronyd", "ntpd", "ntpd-rs", "systemd-timesyn", "ptp4l", "phc2sys", "openntpd")
_SHARED = re.compile(
    r"nfs4?|lustre|gpfs|beegfs\w*|ceph|cifs|smb3|glusterfs|wekafs|panfs|orangefs|pvfs2|afs|9p|dvs|"
    r"fuse\.(?!gvfs|portal)\S+"
)
# Options that are another one on each host.
_OWN_OPTIONS = ("addr", "clientaddr", "mountaddr", "mountport", "port", "local_lock", "lock", "fd", "user_id")
_FIRST_USER, _NOBODY = 1000, 65534
_BUSY = 0.5  # of a core
_UNSYNCHRONISED = 0x40  # STA_UNSYNC of adjtimex(2)


def text(path: Path) -> str | None:
    """What the file has; None where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def choice(path: Path) -> str | None:
    """The file's text; of several choices the one in brackets."""
    line = text(path)
    chosen = re.search(r"\[(\S+)\]", line or "")
    return chosen[1] if chosen else line


def settings(root: Path) -> dict[str, str | None]:
    """By name: the same on all hosts of a kind."""
    values = {name: choice(root / path) for name, path in _FILES.items()}
    microcode = re.search(r"^microcode\s*: (\S+)", text(root / "proc/cpuinfo") or "", re.MULTILINE)
    values["microcode"] = microcode[1] if microcode else None
    for file in sorted((root / "sys/devices/system/cpu/vulnerabilities").glob("*")):
        values[f"mitigation-{file.name}"] = text(file)
    limits = text(root / "proc/self/limits") or ""
    for name, title in _LIMITS.items():
        match = re.search(rf"^{title} +(\S+) +(\S+)", limits, re.MULTILINE)
        values[name] = f"{match[1]} (hard {match[2]})" if match else None
    names = {text(path) for path in (root / "proc").glob("[0-9]*/comm")}
    # a container sees its own processes alone
    values["time-service"] = ", ".join(name for name in _TIME_SERVICES if name in names) or None
    modules = {line.split()[0] for line in (text(root / "proc/modules") or "").splitlines() if line}
    if "nvidia" in modules:
        values["nvidia-peermem"] = "loaded" if {"nvidia_peermem", "nv_peer_mem"} & modules else "not loaded"
        values["fabric-manager"] = "runs" if "nv-fabricmanage" in names else "does not run"
    return values


def synchronised() -> str | None:
    """Whether a time service keeps the clock, by the kernel."""
    buffer = ctypes.create_string_buffer(512)  # struct timex: only read where no mode is set
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except AttributeError:
        return None
    if state < 0:
        return None
    # modes, then four longs, then the status
    offset = 4 * ctypes.sizeof(ctypes.c_long) + ctypes.sizeof(ctypes.c_long)
    status = ctypes.c_int.from_buffer(buffer, offset).value
    return "no" if status & _UNSYNCHRONISED else "yes"


def mounts(root: Path) -> dict[str, str]:
    """Type and options of each shared file system; `on demand` below a mount of autofs."""
    shared: dict[str, str] = {}
    automatic: list[str] = []
    for line in (text(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 6 or len(rest) < 3:
            continue
        if rest[0] == "autofs":
            automatic.append(fields[4])
        elif _SHARED.fullmatch(rest[0]):
            options = {*fields[5].split(","), *rest[2].split(",")}
            common = sorted(option for option in options if option.partition("=")[0] not in _OWN_OPTIONS)
            shared[fields[4]] = f"{rest[0]} {','.join(common)}"
    return {
        point: value
        for point, value in shared.items()
        if not any(point == top or point.startswith(f"{top}/") for top in automatic)
    }


def memory_errors(root: Path) -> dict[str, int] | None:
    """Errors of memory since the driver was loaded; None without one."""
    controllers = [*(root / "sys/devices/system/edac/mc").glob("mc[0-9]*")]
    counters = {"corrected": "ce_count", "uncorrected": "ue_count"}
    if not controllers:
        return None
    return {
        name: sum(int(text(folder / counter) or 0) for folder in controllers)
        for name, counter in counters.items()
    }


def machine_checks(root: Path) -> int | None:
    """Machine check exceptions since the host was started."""
    match = re.search(r"^ *MCE:((?: +[0-9]+)+)", text(root / "proc/interrupts") or "", re.MULTILINE)
    return sum(map(int, match[1].split())) if match else None


def processes(root: Path, seconds: float) -> list[dict[str, Any]]:
    """Processes of other users that keep a core busy."""
    before = _ticks(root)
    time.sleep(seconds)
    busy = []
    for path, ticks in _ticks(root).items():
        used = (ticks - before.get(path, ticks)) / os.sysconf("SC_CLK_TCK") / max(seconds, 1e-9)
        if used > _BUSY:
            busy.append(
                {"pid": int(path.name), "user": user_of(path), "command": text(path / "comm"), "cores": used}
            )
    return busy


def user_of(path: Path) -> str:
    """The owner of a process, by its folder in /proc."""
    try:
        number = path.stat().st_uid
        return pwd.getpwuid(number).pw_name
    except OSError:
        return "unknown"
    except KeyError:
        return str(number)


def _ticks(root: Path) -> dict[Path, int]:
    """Processor time of each process of another ordinary user."""
    ticks = {}
    for path in (root / "proc").glob("[0-9]*"):
        try:
            owner = path.stat().st_uid
            fields = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if owner >= _FIRST_USER and owner not in (_NOBODY, os.getuid()) and len(fields) > 12:
            ticks[path] = int(fields[11]) + int(fields[12])
    return ticks


def facts(root: Path, seconds: float) -> dict[str, Any]:
    """occupied: by what of a scheduler, whose processes are not left over."""
    return {
        "settings": {**settings(root), "clock-synchronised": synchronised()},
        "mounts": mounts(root),
        "rdma": any((root / "sys/class/infiniband").glob("*")),
        "memory_errors": memory_errors(root),
        "machine_checks": machine_checks(root),
        "occupied": occupied.by(root / "proc"),
        "processes": processes(root, seconds),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Tell what an ordinary user can read of this host's settings."
    )
    parser.add_argument("--root", type=Path, default=Path("/"), help="where proc and sys are")
    parser.add_argument("--seconds", type=float, default=1.0, help="watch the processes for so long")
    options = parser.parse_args(arguments)
    tell(facts(options.root, options.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
