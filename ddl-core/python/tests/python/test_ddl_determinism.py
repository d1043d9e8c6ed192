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


PLACEMENT = """
import ddl, hashlib, numpy as np
digest = hashlib.sha256()
for n in (5, 10007, 200001):
    # By rank: the same contributions however the ranks are placed.
    x = np.random.default_rng([ddl.rank(), n]).standard_normal(n)
    for dtype in (np.float32, np.float16, np.float64):
        for op in ("sum", "avg", "product", "min"):
            digest.update(ddl.allreduce(x.astype(dtype), op=op).tobytes())
            parts = np.array_split(x.astype(dtype), 7)
            alone = [ddl.allreduce(part, op=op) for part in parts]
            together = ddl.allreduce_n(parts, op=op)
            assert all(np.array_equal(a, b) for a, b in zip(alone, together)), "grouping shows"
            digest.update(b"".join(a.tobytes() for a in alone))
print("digest", digest.hexdigest())
"""

LAYOUTS = ["4", "2,2", "3,1", "1,1,1,1", "1,1/1,1", "2/1,1"]


def _digests(mpirun: Any, options: str) -> set[str]:
    digests = set()
    for hosts in LAYOUTS:
        run = mpirun(4, PLACEMENT, hosts=hosts, env={"DDL_OPTIONS": options})
        assert run.status == 0, run.output
        assert len(run.lines("digest ")) == 4 and len(set(run.lines("digest "))) == 1
        digests |= set(run.lines("digest "))
    return digests


def test_placement_does_not_show_when_asked_for(mpirun: Any) -> None:
    """Nor does the topology, nor how arrays are grouped."""
    assert len(_digests(mpirun, "-deterministic placement")) == 1


def test_placement_shows_otherwise(mpirun: Any) -> None:
    """Else the test above would prove nothing."""
    assert len(_digests(mpirun, "-deterministic run")) > 1


CANDIDATES = """
import ddl, numpy as np, sys
x = np.random.default_rng(ddl.rank()).standard_normal(int(sys.argv[1]))
everyone = [np.random.default_rng(rank).standard_normal(x.size) for rank in range(ddl.size())]
for dtype in ("f", "e", "d"):
    first = ddl.allreduce(x.astype(dtype))
    total = sum(one.astype(dtype).astype("d") for one in everyone)
    assert np.allclose(first, total, rtol=0, atol=1e-2 if dtype == "e" else 1e-5), dtype
    assert all(np.array_equal(ddl.allreduce(x.astype(dtype)), first) for _ in range(100)), dtype
print("algorithms", "; ".join(ddl.stats()["algorithms"]))
"""


@pytest.mark.parametrize("count", [5, 3001, 40_000])
@pytest.mark.parametrize("hosts", ["1,1/1,1", "2,2,2,2", "1,1/1,1/1,1/1,1", "1,1,1"])
def test_every_candidate_of_the_planner_gives_the_same_bits(mpirun: Any, hosts: str, count: int) -> None:
    """While it tries them out: 300 calls of one size, on links that it misjudges."""
    ranks = sum(int(n) for n in hosts.replace("/", ",").split(","))
    run = mpirun(ranks, CANDIDATES, str(count), hosts=hosts)
    assert run.status == 0, run.output
    tried = set(run.lines("algorithms ")[0].split("; "))
    assert len(tried) > 1
    if count < 4000:
        for leaders in ("direct", "one-shot", "star"):
            assert f"leaders: {leaders}" in tried
        pairs = {"leaders: recursive doubling", "leaders: recursive halving-doubling"}
        assert tried & pairs == (pairs if ranks > 3 else set())
