"""Memory beyond the caller's buffers."""

from __future__ import annotations

from typing import Any

PROGRAM = """
import ddl, numpy as np
from ddl import _core
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
ddl.allreduce(np.ones(1000, "f"))
buffers = [np.ones(n, "f") for n in (1, 9_000_000, 0, 20_000_000, 3, 4_000_000)]   # 126 MiB
before = peak()
_core.allreduce_n([b.ctypes.data for b in buffers], [b.size for b in buffers], 0, 0, "grouped")
ddl.bcast_(buffers[3])
used = peak() - before
assert all((b == ddl.size()).all() for b in buffers)
print("MiB", used)
"""


def test_grouped_buffers_are_not_copied_into_one(mpirun: Any) -> None:
    """At most 32 MiB a rank, however large the buffers."""
    for hosts in ("2", "1,1", "2,1"):
        ranks = sum(int(n) for n in hosts.split(","))
        run = mpirun(ranks, PROGRAM, hosts=hosts)
        assert run.status == 0, run.output
        used = [float(line) for line in run.lines("MiB ")]
        assert len(used) == ranks and max(used) <= 32, used
