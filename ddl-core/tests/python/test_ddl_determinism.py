"""Bitwise equal results from run to run."""

from __future__ import annotations

from typing import Any

import pytest

PROGRAM = """
import ddl, hashlib, numpy as np
digest = hashlib.sha256()
for n in (5, 10007, 700001):
    x = np.random.default_rng([ddl.rank(), n]).standard_normal(n)
    for dtype in (np.float32, np.float16, np.float64):
        digest.update(ddl.allreduce(x.astype(dtype)).tobytes())
        digest.update(ddl.allreduce_n([x.astype(dtype), x[:3].astype(dtype)])[1].tobytes())
print("digest", digest.hexdigest())
"""


@pytest.mark.parametrize("hosts", ["4", "3,2"])
def test_runs_are_bitwise_equal(mpirun: Any, hosts: str) -> None:
    """Whatever the ranks' timing is: sums of floating-point numbers in another order would differ."""
    ranks = sum(int(n) for n in hosts.split(","))
    digests = set()
    for _ in range(3):
        run = mpirun(ranks, PROGRAM, hosts=hosts)
        assert run.status == 0, run.output
        assert len(run.lines("digest ")) == ranks
        digests |= set(run.lines("digest "))
    assert len(digests) == 1
