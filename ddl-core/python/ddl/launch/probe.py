"""What a host is: runs on every host of a job, as text sent to its Python, so it imports the standard library
only.

``facts(prefix, package)`` returns plain data; run as a program it prints that between two markers, because
login shells print things of their own.
"""

import json
import os
import platform
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

_CPU = Path("/sys/devices/system/cpu")


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, ValueError):
        return ""


def _ranges(text: str) -> set[int]:
    """Numbers of a kernel list such as `0-3,8`."""
    found: set[int] = set()
    for piece in filter(None, text.split(",")):
        low, _, high = piece.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return found


def _cgroup_folders() -> list[Path]:
    """This process' cgroup and its parents, innermost first, as far as they can be seen from here."""
    root = Path("/sys/fs/cgroup")
    for line in _read("/proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            inside = Path(line[3:].lstrip("/"))
            if ".." not in inside.parts:
                return [root / inside, *(root / parent for parent in inside.parents)]
    return [root]


def _allowed_by_cgroup() -> set[int] | None:
    """CPUs that the container or job may use at all, None when unlimited. MPI numbers its cores among
    these.
    """
    for folder in _cgroup_folders():
        text = _read(folder / "cpuset.cpus.effective")
        if text:
            return _ranges(text)
    return None


def _quota() -> float | None:
    """Cores' worth of time that the container or job gets; None when unlimited."""
    quotas = []
    for folder in _cgroup_folders():
        words = _read(folder / "cpu.max").split()
        if len(words) == 2 and words[0] != "max":
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def cores() -> list[list[int]]:
    """Usable cores by package, as numbers among all cores that MPI sees here.

    The order is hwloc's: packages, then groups sharing the last-level cache, then cores, each by its lowest
    CPU.
    """
    online = _ranges(_read(_CPU / "online")) or set(range(os.cpu_count() or 1))
    allowed = _allowed_by_cgroup()
    visible = online & allowed if allowed else online
    affinity = os.sched_getaffinity(0)
    found: dict[int, tuple[tuple[int, int, int], frozenset[int]]] = {}
    for cpu in sorted(visible):
        topology = _CPU / f"cpu{cpu}" / "topology"
        siblings = frozenset(_ranges(_read(topology / "thread_siblings_list")) & visible or {cpu})
        package = min(_ranges(_read(topology / "package_cpus_list")) & visible or {0})
        cache = min(_ranges(_read(_CPU / f"cpu{cpu}/cache/index3/shared_cpu_list")) & visible or {package})
        found[min(siblings)] = ((package, cache, min(siblings)), siblings)
    packages: dict[int, list[int]] = {}
    for number, (key, siblings) in enumerate(sorted(found.values(), key=lambda item: item[0])):
        if siblings & affinity:
            packages.setdefault(key[0], []).append(number)
    return list(packages.values())


def accelerators() -> int:
    """GPUs that the driver shows, less those that CUDA_VISIBLE_DEVICES hides."""
    try:
        present = len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        present = 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    return min(present, len([name for name in visible.split(",") if name.strip() and name.strip() != "-1"]))


def ddl_version(prefix: str, package: str) -> str | None:
    """Version of DDL in the environment, from file names: loading it takes long and could fail. None:
    absent.
    """
    if not (Path(package) / "__init__.py").is_file():
        return None
    for record in sorted(Path(prefix, "conda-meta").glob("ddl-[0-9]*.json")):
        return record.stem.removeprefix("ddl-")
    for folder in (Path(prefix, "lib"), Path(package, "../../lib")):
        for library in sorted(folder.glob("libddl.so.*.*.*")):
            return library.name.removeprefix("libddl.so.")
    return "unknown"


def mpi_version(prefix: str) -> str | None:
    """What the environment's mpirun calls itself. None: absent or not able to run."""
    try:
        said = subprocess.run(
            [os.path.join(prefix, "bin", "mpirun"), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=8,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\(([^)]*)\)\s+(\S+)", said.stdout)
    return f"{found[1]} {found[2]}" if found else None


def facts(prefix: str, package: str) -> dict[str, Any]:
    memory = re.search(r"MemAvailable:\s+(\d+) kB", _read("/proc/meminfo"))
    shm = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    return {
        "name": socket.gethostname(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cores": cores(),
        "quota": _quota(),
        "accelerators": accelerators(),
        "memory_bytes": int(memory[1]) * 1024 if memory else None,
        "shm_bytes": shm.f_bavail * shm.f_frsize if shm else None,
        "ddl": ddl_version(prefix, package),
        "mpi": mpi_version(prefix),
    }


if __name__ == "__main__":
    _nonce, _prefix, _package = sys.argv[1:4]
    _mark = f"@@ddlrun:{_nonce}@@"
    print(f"\n{_mark}{json.dumps(facts(_prefix, _package))}{_mark}", flush=True)
