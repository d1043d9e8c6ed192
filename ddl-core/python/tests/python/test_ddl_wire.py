"""Reduced wire formats: within their bounds, the same on all ranks, and exact inside a host."""

from __future__ import annotations

from typing import Any

import pytest

PROGRAM = """
import ddl, hashlib, numpy as np, sys
bound = float(sys.argv[1])
rank, size = ddl.rank(), ddl.size()
digest = hashlib.sha256()
for n in (1, 255, 256, 257, 10007, 300001):
    inputs = [np.random.default_rng([r, n]).standard_normal(n).astype("f") for r in range(size)]
    exact = sum(x.astype("d") for x in inputs)
    for op, expected in (("sum", exact), ("avg", exact / size)):
        got = ddl.allreduce(inputs[rank], op=op)
        digest.update(got.tobytes())
        # Every partial sum and the result lose at most `bound` of the largest possible value around them.
        largest = sum(np.abs(x).max() for x in inputs) / (size if op == "avg" else 1)
        worst = np.abs(got - expected).max()
        assert worst <= bound * largest + 1e-6, (n, op, worst, largest)
        if n > 10000:
            print("lossy", worst > 1e-5 * largest)
    exact64 = ddl.allreduce(inputs[rank].astype("d"))
    assert np.allclose(exact64, exact, rtol=1e-14, atol=1e-12), "only float32 is reduced in format"
    assert np.array_equal(ddl.allreduce(inputs[rank], op="max"), np.max(inputs, 0)), "only sums are"
print("digest", digest.hexdigest())
print("sent", ddl.stats()["bytes_sent"])
"""


@pytest.mark.parametrize(("wire", "bound"), [("fp16", 4 * 2**-11), ("bf16", 4 * 2**-8), ("q8", 4 / 254)])
@pytest.mark.parametrize("hosts", ["1,1", "2,1", "1,1,1", "2,1/1"])
def test_within_the_bound_and_equal_on_all_ranks(mpirun: Any, wire: str, bound: float, hosts: str) -> None:
    ranks = sum(int(n) for n in hosts.replace("/", ",").split(","))
    run = mpirun(ranks, PROGRAM, str(bound), hosts=hosts, env={"DDL_OPTIONS": f"-wire {wire}"})
    assert run.status == 0, run.output
    digests = run.lines("digest ")
    assert len(digests) == ranks and len(set(digests)) == 1, "ranks differ"
    assert set(run.lines("lossy ")) == {"True"}, "the format was not used"


def test_a_single_host_stays_exact(mpirun: Any) -> None:
    run = mpirun(3, PROGRAM, "1e-7", env={"DDL_OPTIONS": "-wire q8"})
    assert run.status == 0, run.output
    assert set(run.lines("lossy ")) == {"False"}


def test_error_feedback_brings_the_mean_to_the_truth(mpirun: Any) -> None:
    """What one call loses the next one adds; the same small gradient beside a large one would stay lost."""
    program = """
import ddl, numpy as np
x = np.full(2048, 0.001, "f"); x[::256] = 1.0
total = np.zeros(2048)
for _ in range(200):
    total += ddl.allreduce(x, op="avg", name="gradient")
print("worst", np.abs(total / 200 - x).max())
"""
    run = mpirun(2, program, hosts="1,1", env={"DDL_OPTIONS": "-wire q8"})
    assert run.status == 0, run.output
    differences = run.lines("worst ")
    assert len(differences) == 2 and all(float(one) < 1e-4 for one in differences), run.output


def test_an_unknown_format_lists_the_valid_ones(mpirun: Any) -> None:
    run = mpirun(1, "import ddl", env={"DDL_OPTIONS": "-wire q4"})
    assert run.status != 0
    assert all(word in run.stderr for word in ("q4", "full", "fp16", "bf16", "q8"))
