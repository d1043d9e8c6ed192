"""The programs that measure how jobs start: real starts on emulated hosts, figures that belong to them."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from program_runner import PYTHONPATH, Environment, run_program

from ddl_validate.launch import start_cost


def measured(env: Environment, program: str, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", f"ddl_validate.launch.{program}", "--prefix", str(env.prefix), *words]
    done = run_program(command, 200, PYTHONPATH=PYTHONPATH)
    found: dict[str, Any] = json.loads(done.ok().out)
    return found


def test_what_ddlrun_adds(able: None, env: Environment) -> None:
    found = measured(env, "start_cost", "--hosts", "2", "--turns", "1", "--megabytes", "2")
    assert found.keys() == {"host", "hosts", "output"}
    many, one, output = found["hosts"], found["host"], found["output"]
    # each rank sleeps for 0.3 s, and ddlrun's ranks do so too
    assert many["hosts"] == 2 and many["mpirun_s"] >= 0.3
    assert min(many["checks_on_s_more"], many["checks_off_s_more"]) + many["mpirun_s"] >= 0.3
    # Python takes more than a hundredth of a second to load ddlrun
    assert min(one["checks_on_cpu_s_more"], one["checks_off_cpu_s_more"]) > 0.01 and one["mpirun_cpu_s"] > 0
    assert output["megabytes"] == 2 and output["pipe_s"] > 0


def test_the_page_has_what_was_recorded() -> None:
    """And says so where ddlrun has changed since: `python -m ddl_validate.launch.start_cost --page`."""
    assert start_cost.MEASURED.page.read_text() == start_cost.MEASURED.page_text()


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
