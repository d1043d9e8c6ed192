"""Facts about the machine that belong beside every time."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

# Variables that change what MPI, UCX, libfabric, Gloo or DDL do; whoever reads the times must know them.
_TELLING = ("OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_", "UCX_", "FI_", "MPIR_", "GLOO_", "DDL_", "OMP_")


def facts() -> dict[str, Any]:
    """Name, processor, cores, memory in bytes, system, load, whether ranks may read each other, and the
    telling variables of the environment."""
    model = next((line for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    memory = next(
        (line for line in _lines("/proc/meminfo") if line.startswith("MemTotal:")), "MemTotal: 0 kB"
    )
    return {
        "name": platform.node(),
        "processor": model.partition(":")[2].strip() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": int(memory.split()[1]) * 1024,
        "system": platform.platform(),
        "load": os.getloadavg()[0],
        # 0, or being root, lets the ranks of a host read each other's memory (cross-memory attach)
        "ptrace_scope": next(iter(_lines("/proc/sys/kernel/yama/ptrace_scope")), None),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(_TELLING)},
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
