"""What DDL shows of itself while it runs: -dump_iter and -timeline."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def test_dump_names_the_straggler_and_every_tier(mpirun: Any) -> None:
    program = """
import ddl, numpy as np, time
for _ in range(8):
    if ddl.rank() == 2:
        time.sleep(0.05)
    ddl.allreduce(np.ones(1000, "f"))
"""
    run = mpirun(4, program, hosts="2,1/1", env={"DDL_OPTIONS": "-dump_iter 4"})
    assert run.status == 0, run.output
    lines = [line for line in run.stderr.splitlines() if line.startswith("[DDL] call ")]
    assert len(lines) == 2, run.output
    for line in lines:
        assert "straggler since the last line: rank 2 (host " in line
        times = re.findall(r"(host|rack|cluster) (\d+\.\d+) s", line)
        assert [tier for tier, _ in times] == ["host", "rack", "cluster"], line
        assert re.search(r"allreduce of 1000 float32 elements \(op sum\) by .* in \d+\.\d+ s", line)
        assert "end to end" in line


def test_timeline_is_a_chrome_trace_of_every_rank(mpirun: Any, tmp_path: Path) -> None:
    program = """
import ddl, numpy as np
for n in (10, 500_000):
    ddl.allreduce(np.ones(n, "f"), name="grads")
"""
    env = {"DDL_OPTIONS": f"-timeline {tmp_path}/trace.json"}
    run = mpirun(3, program, hosts="2,1", env=env)
    assert run.status == 0, run.output
    for rank in range(3):
        events = json.loads((tmp_path / f"trace.rank{rank}.json").read_text())
        assert {event["pid"] for event in events} == {rank}
        names = {event["args"]["name"] for event in events if event["ph"] == "M"}
        assert {"calls", "memory", "tier cluster"} <= names
        spans = [event for event in events if event["ph"] == "X"]
        assert all(event["dur"] >= 0 and event["ts"] > 1e15 for event in spans)
        calls = [event for event in spans if event["tid"] == 0]
        assert [call["name"].startswith("allreduce of") for call in calls] == [True, True]
        inside = [event for event in spans if event["tid"] > 0]
        first, last = calls[0]["ts"], calls[1]["ts"] + calls[1]["dur"]
        assert inside and all(first - 1 <= e["ts"] <= last for e in inside)
        found = {event["name"] for event in inside}
        assert "reduce" in found
        # One rank of each host takes part in the tier, as the smaller one has one: the last.
        assert ("up" in found) == (rank > 0)


def test_a_timeline_that_cannot_be_written_is_said_on_all_ranks(mpirun: Any) -> None:
    run = mpirun(2, "import ddl", env={"DDL_OPTIONS": "-timeline /no/such/folder/t.json"})
    assert run.status != 0
    assert "cannot write the timeline /no/such/folder/t.rank0.json" in run.stderr
