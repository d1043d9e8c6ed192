"""A rank whose program ends while a call is under way: it waits for nobody, and the others learn why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

#: Rank 1 makes no call before the process of rank 0 has ended, so whoever waits for it there waits in vain.
ENDING = """
import os, signal, sys, threading, time
import ddl, numpy as np

case, folder = sys.argv[1], sys.argv[2]
name = os.path.join(folder, "pid")
ddl.barrier()
if ddl.rank() == 0:
    with open(name + ".new", "w") as file:
        file.write(str(os.getpid()))
    if case == "thread":
        threading.Thread(target=lambda: ddl.allreduce(np.ones(1000, "f"))).start()
        while not ddl._core.busy():
            time.sleep(0.01)
    else:
        pending = ddl.allreduce_start(np.ones(1000, "f"))
    os.rename(name + ".new", name)
    if case == "dropped":
        del pending
    if case in ("raise", "dropped", "thread"):
        raise RuntimeError("the culprit's own error")
    if case == "exit":
        sys.exit(3)
    if case == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    sys.exit()  # "forgotten"

def say(text):
    with open(os.path.join(folder, "said"), "a") as file:
        file.write(text + "\\n")
def lives():
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:  # gone, perhaps since it was opened
        return False
while not os.path.exists(name):
    time.sleep(0.01)
pid = int(open(name).read())
limit = time.monotonic() + 40
while lives() and time.monotonic() < limit:
    time.sleep(0.01)
say("lives" if lives() else "ended")
try:
    ddl.allreduce(np.ones(1000, "f"))
except ddl.DDLError as error:
    say(f"error {error.code} {error}")
"""


@pytest.mark.parametrize("hosts", ["2", "1,1"])
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("raise", "RuntimeError: the culprit's own error"),
        ("dropped", "RuntimeError: the culprit's own error"),
        ("thread", "RuntimeError: the culprit's own error"),
        ("interrupt", "KeyboardInterrupt"),
        ("exit", "sys.exit: 3"),
        ("forgotten", "it ended while a call was under way"),
    ],
)
def test_rank_that_ends_in_a_call(mpirun: Any, tmp_path: Path, case: str, reason: str, hosts: str) -> None:
    """The others sleep meanwhile. Their next call ends with an error that names it and its reason."""
    run = mpirun(2, ENDING, case, str(tmp_path), hosts=hosts, exit_together=True)
    assert run.status != 0, run.output
    file = tmp_path / "said"
    said = file.read_text().splitlines() if file.exists() else []
    assert len(said) == 2 and said[0] == "ended", (said, run.output)
    error = said[1]
    assert error.startswith("error 9 [ERROR DDL-1-9] the program of rank 0 (host "), run.output
    assert f"ends with an error: {reason}; on that rank; look at its output" in error, run.output
    if case == "exit":
        assert run.status == 3, run.output
    if case in ("raise", "dropped", "thread"):
        assert "the culprit's own error" in run.stderr


def test_a_handle_that_is_dropped_waits_for_nobody(mpirun: Any, tmp_path: Path) -> None:
    """Rank 1 comes to the call when rank 0 has dropped its handle; DDL writes to the old memory alone."""
    program = """
import gc, os, sys, time
import ddl, numpy as np

flag = os.path.join(sys.argv[1], "dropped")
limit = time.monotonic() + 40
if ddl.rank() == 1:
    while not os.path.exists(flag) and time.monotonic() < limit:
        time.sleep(0.01)
    print("came", os.path.exists(flag), flush=True)
for size in (1000, 3_000_000):
    pending = ddl.allreduce_start(np.full(size, 2, "f"))
    del pending
    gc.collect()
    others = [np.full(size, 7, "f") for _ in range(4)]
    open(flag, "w").close()
    assert (ddl.allreduce(np.ones(size, "f")) == 2).all()
    assert all((other == 7).all() for other in others)
print("left", len(ddl._arrays._under_way), flush=True)
ddl.allreduce_start(np.ones(1, "f")).wait()
print("kept", len(ddl._arrays._under_way), flush=True)
"""
    run = mpirun(2, program, str(tmp_path), timeout=90)
    assert run.status == 0, run.output
    assert run.lines("came ") == ["True"], run.output
    assert run.lines("kept ") == ["0", "0"], run.output
