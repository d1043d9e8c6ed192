"""Processes of this host: whatever they are and wherever they went, they end within their limits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ddlrun import processes
from ddlrun_program import is_alive

PACKAGES = str(Path(processes.__file__).parents[1])

# Below it: a program that ignores SIGTERM, one that has left its session, and an orphan of both.
SUPERVISOR = f"""
import json, os, subprocess, sys, time
sys.path.insert(0, {PACKAGES!r})
from ddlrun import processes

processes.adopt_orphans()
ready = sys.argv[1]
stray = "sleep 3600 & echo > $0; sleep 3600"
stubborn = "trap '' TERM; setsid sh -c '" + stray + "' $0 & while :; do sleep 3600; done"
child = subprocess.Popen(["sh", "-c", stubborn, ready], start_new_session=True)
polite = subprocess.Popen(["sleep", "3600"], start_new_session=True)
while not os.path.exists(ready):
    time.sleep(0.01)
before = processes.descendants()
codes = processes.end_descendants([-child.pid, polite.pid], 0.3)
codes = [codes[child.pid], codes[polite.pid]]
print(json.dumps([codes, before, processes.descendants(), processes.children()]))
"""

PARENT = f"""
import signal, subprocess, sys
sys.path.insert(0, {PACKAGES!r})
from ddlrun import processes

child = subprocess.Popen(["sleep", "3600"], preexec_fn=processes.die_with_parent(signal.SIGTERM))
print(child.pid, flush=True)
child.wait()
"""


def test_what_is_below_a_process_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    run = subprocess.run(
        [sys.executable, "-c", SUPERVISOR, tmp_path / "ready"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    codes, before, left, children = json.loads(run.stdout)
    assert codes == [-signal.SIGKILL, -signal.SIGTERM]
    assert len(before) >= 4 and left == children == []
    assert not [pid for pid in before if is_alive(pid)]
    assert time.monotonic() - began < 30


def test_a_child_dies_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
    until = time.monotonic() + 20
    while is_alive(child):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_output_is_printed_and_returned(capsys: pytest.CaptureFixture[str]) -> None:
    script = 'echo one; echo "$A" >&2; cat; kill -9 $$'
    code, lines = processes.run_echoed(["sh", "-c", script], {**os.environ, "A": "two"})
    assert code == -signal.SIGKILL and lines == ["one\n", "two\n"]
    assert capsys.readouterr().out == "one\ntwo\n"
    with pytest.raises(FileNotFoundError):
        processes.run_echoed(["/no/such/program"])


def test_codes_as_shells_have_them() -> None:
    assert [processes.shell_code(code) for code in (0, 3, -9)] == [0, 3, 137]


def test_a_signal_to_what_is_gone_is_none() -> None:
    child = subprocess.Popen(["true"], start_new_session=True)
    child.wait(20)
    processes.send(signal.SIGTERM, child.pid)
    processes.send(signal.SIGTERM, -child.pid)
