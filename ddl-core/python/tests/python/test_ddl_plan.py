"""What was planned: modes, what DDL_PLAN=explain shows, the cache of the links' figures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import ddl, numpy as np
rank, size = ddl.rank(), ddl.size()
for n in (0, 1, 1009, 200_003):
    x = np.random.default_rng([rank, n]).standard_normal(n)
    exact = sum(np.random.default_rng([r, n]).standard_normal(n) for r in range(size))
    assert np.allclose(ddl.allreduce(x), exact, rtol=1e-12, atol=1e-12), n
    assert np.allclose(ddl.allreduce(x.astype("f"), op="avg"), exact / size, atol=1e-5), n
    assert np.array_equal(ddl.allreduce(np.full(n, rank, "i4"), op="max"), np.full(n, size - 1)), n
    half = ddl.allreduce(np.full(n, 0.5, "e"))
    assert half.dtype == np.float16 and np.array_equal(half, np.full(n, size / 2)), n
print("used", "|".join(sorted(ddl.stats()["algorithms"])))
"""


@pytest.mark.parametrize(
    ("mode", "algorithm"),
    [
        ("r", "ring, ring"),
        ("b", "ring, ring"),
        ("n", "ring, ring"),
        ("c", "recursive halving-doubling, recursive halving-doubling"),
        ("m", "MPI reduce-scatter + all-gather, MPI reduce-scatter + all-gather"),
    ],
)
def test_letters_choose_the_algorithm(mpirun: Any, tmp_path: Path, mode: str, algorithm: str) -> None:
    env = {"DDL_OPTIONS": f"-mode {mode} -dbg_level 1", "DDL_CACHE_DIR": str(tmp_path)}
    run = mpirun(6, PROGRAM, hosts="2,1/1,2", env=env)
    assert run.status == 0, run.output
    assert set(run.lines("used ")) == {f"tiers: {algorithm}"}
    assert ("for those of the host every tier uses a ring" in run.stderr) == (mode in "bn")


def test_explain_shows_prediction_and_time(mpirun: Any, tmp_path: Path) -> None:
    program = """
import ddl, numpy as np
for _ in range(60):
    ddl.allreduce(np.ones(300_000, "f"))
"""
    env = {"DDL_PLAN": "explain", "DDL_CACHE_DIR": str(tmp_path)}
    run = mpirun(4, program, hosts="2,2", env=env)
    assert run.status == 0, run.output
    lines = [line for line in run.stderr.splitlines() if line.startswith("[DDL] plan of 1200000 bytes: ")]
    assert lines, run.output
    shown = re.compile(r"predicted \d+\.\d+ ms \(links measured\), measured \d+\.\d+ ms")
    assert all(shown.search(line) for line in lines), lines
    assert "instead of" in run.stderr


def test_figures_are_measured_once_a_cluster(mpirun: Any, tmp_path: Path) -> None:
    env = {"DDL_PLAN": "explain", "DDL_CACHE_DIR": str(tmp_path / "made" / "here")}
    program = "import ddl, numpy as np\nfor _ in range(4): ddl.allreduce(np.ones(9, 'f'))"
    first = mpirun(2, program, hosts="1,1", env=env)
    again = mpirun(2, program, hosts="1,1", env=env)
    other = mpirun(3, program, hosts="2,1", env=env)
    assert "(links measured)" in first.stderr, first.output
    assert "(links cached)" in again.stderr, again.output
    assert "(links measured)" in other.stderr, other.output
    files = sorted((tmp_path / "made" / "here").iterdir())
    assert len(files) == 2
    for file in files:
        file.write_text("ddl-links 1\nmemory nan -3\n")
    spoilt = mpirun(2, program, hosts="1,1", env=env)
    assert spoilt.status == 0 and "(links measured)" in spoilt.stderr, spoilt.output


def test_a_cache_that_cannot_be_written_does_no_harm(mpirun: Any) -> None:
    run = mpirun(2, PROGRAM, hosts="1,1", env={"DDL_CACHE_DIR": "/proc/nowhere"})
    assert run.status == 0, run.output
