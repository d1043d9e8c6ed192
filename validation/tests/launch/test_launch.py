"""The programs that measure how jobs start: real starts on emulated hosts, figures that belong to them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest
from program_runner import ROOT, Environment

from ddl_validate.cluster import missing_requirements


@pytest.fixture
def able() -> None:
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))


def measured(env: Environment, program: str, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", f"ddl_validate.launch.{program}", "--prefix", str(env.prefix), *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_ddlrun_adds(able: None, env: Environment) -> None:
    found = measured(env, "start_cost", "--hosts", "2", "--turns", "1")
    assert found.keys() == {"hosts", "mpirun_s", "checks_on_s_more", "checks_off_s_more"}
    # each rank sleeps for 0.3 s, and ddlrun's ranks do so too
    assert found["hosts"] == 2 and found["mpirun_s"] >= 0.3
    assert min(found["checks_on_s_more"], found["checks_off_s_more"]) + found["mpirun_s"] >= 0.3


def test_first_all_reduce(able: None, env: Environment) -> None:
    start = time.monotonic()
    found = measured(env, "first_allreduce", "--hosts", "2", "--ranks", "1", "--turns", "1")
    seconds = time.monotonic() - start
    assert (found["hosts"], found["ranks"]) == (2, 2)
    # MPI starts in no millisecond, and all of it together took no longer than the program
    times = [found["mpi_s"], found["ddl_s"], found["ddl_first_s"]]
    assert min(times) > 0.002 and sum(times) < seconds
    # of a single turn; each time is rounded to a millisecond
    least = (found["ddl_s"] - 0.0006) / (found["mpi_s"] + 0.0006)
    most = (found["ddl_s"] + 0.0006) / max(found["mpi_s"] - 0.0006, 1e-9)
    assert least - 0.001 <= found["ratio"] <= most + 0.001
