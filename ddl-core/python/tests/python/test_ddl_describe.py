"""What DDL says about itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

VERSION = (Path(__file__).resolve().parents[4] / "VERSION").read_text().strip()
PROGRAM = """
import ddl, json, numpy as np
assert ddl.__version__ == ddl.describe()["version"]
ddl.allreduce(np.ones(1000000, "f"), name="gradients")
print("state", json.dumps({**ddl.describe(), "local": [ddl.local_rank(), ddl.local_size(), ddl.num_hosts(),
                                                       ddl.host_index()]}))
"""


def _states(run: Any) -> list[dict[str, Any]]:
    assert run.status == 0, run.output
    return sorted((json.loads(line) for line in run.lines("state ")), key=lambda state: state["rank"])


def test_describe_uneven_hosts(mpirun: Any) -> None:
    """Tiers, hosts, the last call and counters that count."""
    states = _states(mpirun(5, PROGRAM, hosts="3,2", env={"DDL_OPTIONS": "-timeout 77"}))
    assert [state["local"] for state in states] == [
        [0, 3, 2, 0],
        [1, 3, 2, 0],
        [2, 3, 2, 0],
        [0, 2, 2, 1],
        [1, 2, 2, 1],
    ]
    for rank, state in enumerate(states):
        assert state["version"] == VERSION
        assert (state["rank"], state["size"]) == (rank, 5)
        assert state["timeout_s"] == 77
        assert state["topology"]["tiers"] == ["host", "cluster"]
        assert state["topology"]["tree"] == [[0, 1, 2], [3, 4]]
        assert [host["ranks"] for host in state["topology"]["hosts"]] == [[0, 1, 2], [3, 4]]
        assert state["transports"] == ["shared memory", "MPI"]
        assert state["last"]["call"] == "allreduce of 1000000 float32 elements (op sum, name 'gradients')"
        assert state["last"]["chunks"] >= 1 and state["last"]["seconds"] > 0
        counters = state["counters"]
        assert counters["calls"] == 1 and counters["bytes"] == 4_000_000
        assert 0 < counters["seconds"]["reduce"] <= counters["seconds"]["total"]
        assert state["failure"] is None
    # Two hosts: each sends half the buffer up and half down, whichever of its ranks does.
    for host in (states[:3], states[3:]):
        # As many ranks of each as the smaller one has.
        for kind in ("bytes_sent", "messages_sent"):
            assert sum(state["counters"][kind] > 0 for state in host) == 2
        assert sum(state["counters"]["bytes_sent"] for state in host) == 4_000_000


def test_describe_alone(mpirun: Any) -> None:
    """A world of one."""
    (state,) = _states(mpirun.alone(PROGRAM))
    assert state["topology"]["tree"] == [0] and state["transports"] == []
    assert state["local"] == [0, 1, 1, 0]


def test_dump_iter(mpirun: Any) -> None:
    """Every second call is reported, by rank 0 only."""
    program = "import ddl, numpy as np\nfor _ in range(6): ddl.allreduce(np.ones(5, 'f'))"
    run = mpirun(2, program, env={"DDL_OPTIONS": "-dump_iter 2"})
    reports = [line for line in run.stderr.splitlines() if line.startswith("[DDL] call ")]
    assert len(reports) == 3 and "allreduce of 5 float32 elements" in reports[0], run.output


@pytest.mark.parametrize("hosts", ["2", "1,1"])
def test_answers_while_a_call_is_under_way(mpirun: Any, hosts: str, tmp_path: Path) -> None:
    """To find out why a call hangs, without ending the job."""
    program = """
import ddl, numpy as np, pathlib, sys, threading, time
seen = pathlib.Path(sys.argv[1])
ddl.barrier()
if ddl.rank() == 1:
    until = time.monotonic() + 40
    while not seen.exists() and time.monotonic() < until:
        time.sleep(0.05)
    ddl.allreduce(np.ones(7, "f"), name="late")
else:
    call = threading.Thread(target=lambda: ddl.allreduce(np.ones(7, "f"), name="late"))
    call.start()
    while ddl.stats()["under_way"] is None:
        time.sleep(0.01)
    under_way = ddl.stats()["under_way"]
    print("waits", call.is_alive(), under_way["number"], under_way["seconds"] >= 0, under_way["call"])
    assert ddl.describe()["counters"]["under_way"]["call"] == under_way["call"]
    seen.touch()
    call.join()
    print("then", ddl.stats()["under_way"])
"""
    run = mpirun(2, program, str(tmp_path / "seen"), hosts=hosts, timeout=60)
    assert run.status == 0, run.output
    assert run.lines("waits ") == ["True 2 True allreduce of 7 float32 elements (op sum, name 'late')"], (
        run.output
    )
    assert run.lines("then ") == ["None"], run.output
