"""Flight records: what every rank writes by itself after a failure, and what ddl.flight_record() writes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

#: The arguments: what rank 1 does instead of the last call.
STOPS = """
import os, signal, sys, time, ddl, numpy as np
x = np.ones(100, "f")
for step in range(3):
    ddl.allreduce(x, name=f"grad/{step}")
ddl.bcast(x)
if ddl.rank() == 1:
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif sys.argv[1] == "sleep":
        time.sleep(600)
    elif sys.argv[1] == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
ddl.allreduce(x, name="loss")
"""


def _read(folder: Path) -> dict[int, dict[str, Any]]:
    texts = {int(path.stem.partition("-")[2]): path.read_text() for path in folder.glob("rank-*.json")}
    assert not list(folder.glob("*.part*")), "half a record was left"
    return {rank: json.loads(text) for rank, text in texts.items()}


def _numbers(record: dict[str, Any]) -> list[int]:
    return [call["number"] for call in record["calls"]]


@pytest.mark.parametrize("hosts", ["3", "1,2", "1,1,1"])
@pytest.mark.parametrize("case", ["kill", "stop"])
def test_every_live_rank_writes(mpirun: Any, tmp_path: Path, case: str, hosts: str) -> None:
    folder = tmp_path / "records"
    limits = {"DDL_OPTIONS": "-timeout 1", "DDL_FLIGHT_RECORDER": str(folder)}
    before = time.time()
    run = mpirun(3, STOPS, case, hosts=hosts, env=limits, timeout=60)
    assert run.status != 0, run.output
    records = _read(folder)
    assert {0, 2} <= set(records) <= {0, 1, 2}, run.output
    for rank in (0, 2):
        record = records[rank]
        assert record["rank"] == rank and record["size"] == 3 and record["format"] == 1
        reason = record["reason"]
        # Where a rank was killed the launcher may end the others before they know.
        ended = case == "kill" and reason == "ended by SIGTERM"
        assert ended or (reason.startswith("[ERROR DDL-1-") and "rank 1 (" in reason), reason
        assert record["communicators"]["1"] == {"ranks": "0-2", "instance": 1}
        assert _numbers(record) == [1, 2, 3, 4, 5]
        last = record["calls"][-1]
        assert last["kind"] == "allreduce" and last["name"] == "loss" and last["bytes"] == 400
        assert last["call"] == "allreduce of 100 float32 elements (op sum, name 'loss')"
        assert last["state"] == ("running" if ended else "failed")
        assert (last["ended"] is None) if ended else (last["began"] <= last["ended"])
        assert [call["state"] for call in record["calls"][:-1]] == ["done"] * 4
        begun = [call["began"] for call in record["calls"]]
        assert begun == sorted(begun) and before - 1 < begun[0] and record["written"] < time.time() + 1


def test_rank_outside_ddl_writes_too(mpirun: Any, tmp_path: Path) -> None:
    """Rank 1 sleeps while the others run out of patience: its thread writes for it."""
    limits = {"DDL_OPTIONS": "-timeout 1 -late 1 -patience 2", "DDL_FLIGHT_RECORDER": str(tmp_path)}
    # The others stay until it has had the time.
    program = STOPS.replace(
        'ddl.allreduce(x, name="loss")',
        'try:\n    ddl.allreduce(x, name="loss")\nexcept ddl.DDLError:\n    time.sleep(2)\n    raise',
    )
    run = mpirun(3, program, "sleep", hosts="2,1", env=limits, timeout=60)
    assert run.status != 0
    records = _read(tmp_path)
    assert set(records) == {0, 1, 2}, run.output
    assert len({record["reason"] for record in records.values()}) == 1, "all tell the same failure"
    assert _numbers(records[1]) == [1, 2, 3, 4] and records[1]["calls"][-1]["state"] == "done"
    assert _numbers(records[0]) == [1, 2, 3, 4, 5]


def test_end_by_a_signal(mpirun: Any, tmp_path: Path) -> None:
    """A rank that SIGTERM ends writes first, and ends by the signal all the same."""
    program = """
import os, signal, subprocess, sys, ddl, numpy as np
ddl.allreduce(np.ones(3, "f"))
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
child.terminate()
assert child.wait() == -signal.SIGTERM
pid = os.fork()
if pid == 0:
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM, "a copy ends as ever"
assert not os.path.exists(os.environ["DDL_FLIGHT_RECORDER"])
ddl.barrier()
os.kill(os.getpid(), signal.SIGTERM)
signal.pause()
"""
    folder = tmp_path / "records"
    run = mpirun(2, program, env={"DDL_FLIGHT_RECORDER": str(folder)}, timeout=60)
    assert run.status == 128 + 15, run.output
    records = _read(folder)
    assert records, run.output
    assert {record["reason"] for record in records.values()} == {"ended by SIGTERM"}


def test_program_that_handles_the_signal(mpirun: Any, tmp_path: Path) -> None:
    """Its handler stays, whether it was there before DDL or comes later."""
    program = """
import os, signal, sys
got = []
early = sys.argv[1] == "early"
if early:
    signal.signal(signal.SIGTERM, lambda *_: got.append(1))
import ddl, numpy as np
if not early:
    signal.signal(signal.SIGTERM, lambda *_: got.append(1))
os.kill(os.getpid(), signal.SIGTERM)
while not got:
    pass
print("handled", float(ddl.allreduce(np.ones(1, "f"))[0]))
"""
    for when in ("early", "late"):
        run = mpirun(2, program, when, env={"DDL_FLIGHT_RECORDER": str(tmp_path)}, timeout=60)
        assert run.status == 0 and run.lines("handled ") == ["2.0", "2.0"], run.output
    assert not _read(tmp_path)


def test_pause_is_recorded_in_time(mpirun: Any, tmp_path: Path) -> None:
    """What SIGKILL ends writes nothing any more: the record of a long wait is there already."""
    program = """
import os, threading, time, ddl, numpy as np
ddl.allreduce(np.ones(100, "f"))
def look():
    time.sleep(8)
    names = os.listdir(os.environ["DDL_FLIGHT_RECORDER"])
    print("seen", len([name for name in names if name.endswith(".json")]))
looking = threading.Thread(target=look)
looking.start()
if ddl.rank() == 1:
    looking.join()
ddl.allreduce(np.ones(100, "f"))
looking.join()
"""
    folder = tmp_path / "records"
    run = mpirun(2, program, env={"DDL_FLIGHT_RECORDER": str(folder)}, timeout=60)
    assert run.status == 0, run.output
    assert "2" in run.lines("seen "), run.output
    assert not folder.exists(), "a job that ends well leaves nothing"


def test_last_256_calls(mpirun: Any, tmp_path: Path) -> None:
    program = """
import sys, threading, ddl, numpy as np
for step in range(300):
    ddl.allreduce(np.ones(2, "d"), name="n" * 300 if step == 299 else None)
path = f"{sys.argv[1]}/mine-{ddl.rank()}.json"
ddl.flight_record(path)
ddl.barrier()
if ddl.rank() == 0:
    ddl.flight_record(path)
try:
    ddl.flight_record(sys.argv[1] + "/none/mine.json")
except ddl.DDLError as error:
    print("refused", error)
ddl.finalize()
try:
    ddl.flight_record(path)
except ddl.DDLError as error:
    print("over", error)
"""
    run = mpirun(2, program, str(tmp_path), timeout=60)
    assert run.status == 0, run.output
    record = json.loads((tmp_path / "mine-1.json").read_text())
    assert record["reason"] == "asked for"
    assert _numbers(record) == list(range(45, 301))
    assert record["calls"][-1]["name"] == "n" * 127 and record["calls"][-1]["bytes"] == 16
    after = json.loads((tmp_path / "mine-0.json").read_text())
    assert after["calls"][-1]["kind"] == "barrier" and len(after["calls"]) == 256
    assert len(run.lines("refused [ERROR DDL-1-1] the flight record cannot be written: No such file")) == 2
    assert len(run.lines("over [ERROR DDL-1-3]")) == 2


def test_ranks_are_those_of_the_whole_job(mpirun: Any, tmp_path: Path) -> None:
    """Two DDLs in one MPI job, each over half of it, numbered backwards: their records do not clash."""
    program = """
from mpi4py import MPI
import sys, ddl, numpy as np
world = MPI.COMM_WORLD
ddl.init(comm=world.Split(world.rank % 2, -world.rank))
ddl.allreduce(np.ones(2, "f"))
if world.rank == 3:
    raise SystemExit(1)
ddl.allreduce(np.ones(2, "f"))
"""
    if mpirun.alone("import importlib.util as u, sys; sys.exit(not u.find_spec('mpi4py'))").status:
        pytest.skip("mpi4py is not installed in the environment under test")
    run = mpirun(4, program, env={"DDL_FLIGHT_RECORDER": str(tmp_path), "DDL_AUTO_INIT": "0"}, timeout=60)
    assert run.status != 0, run.output
    records = _read(tmp_path)
    assert 1 in records, run.output
    for rank, record in records.items():
        own = "0,2" if rank % 2 == 0 else "1,3"
        assert record["rank"] == rank and record["size"] == 4
        assert [one["ranks"] for one in record["communicators"].values()] == [own]
