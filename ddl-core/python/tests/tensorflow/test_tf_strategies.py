"""TensorFlow's own strategies and parameter servers, started by ddlrun: the examples learn, and go on after
the loss of any of their tasks.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from rank_processes import PREFIX, finish, own_environment, start

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "strategies"
GATED = str(Path(__file__).with_name("programs") / "gated.py")
LIMIT = 240.0
# Fewer words, and two threads are as many as the machine of the tests has.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "OMP_NUM_THREADS": "1"}

MONITORED = "monitored_session.py"
COORDINATED = "parameter_server_strategy.py"
MIRRORED_WORKERS = "multi_worker_mirrored.py"


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone
        return b""


class Job:
    """A job of ddlrun's that a test watches and harms."""

    def __init__(self, *words: str) -> None:
        command = [str(PREFIX / "bin/ddlrun"), "-q", *words]
        self.child = start(command, {**own_environment(), **QUIET}, own_session=False)
        self.seen: list[str] = []

    def await_line(self, pattern: str) -> re.Match[str]:
        """The next line of the tasks that this is found in."""
        assert self.child.stdout
        while line := self.child.stdout.readline():
            self.seen.append(line)
            if found := re.search(pattern, line):
                return found
        pytest.fail(
            f"no {pattern!r} in {''.join(self.seen)}\n{self.child.stderr and self.child.stderr.read()}"
        )

    def kill(self, task: str) -> None:
        """Kill -9 of a task's program: `ps 0`."""
        kind, _, index = task.partition(" ")
        wanted = f'"task": {{"type": "{kind}", "index": {index}}}'.encode()
        pids = [pid for pid in self.processes() if wanted in _environment(pid)]
        assert len(pids) == 1, (task, pids)
        os.kill(pids[0], signal.SIGKILL)

    def processes(self) -> list[int]:
        """All below ddlrun."""
        listed = subprocess.run(
            ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
        ).stdout
        parents = dict(map(int, line.split()) for line in listed.splitlines())
        found = [self.child.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found[1:]

    def finish(self) -> tuple[str, str]:
        """All of its output, and its errors. Its end must be a good one."""
        out, err = finish(self.child, LIMIT)
        out = "".join(self.seen) + out
        assert self.child.returncode == 0, (self.child.returncode, out, err)
        return out, err


def run(*words: str) -> str:
    return Job(*words).finish()[0]


def accuracy(out: str) -> float:
    found = re.findall(r"^accuracy: (\S+)$", out, re.MULTILINE)
    assert len(found) == 1 and re.search(r"^images/sec: [1-9]\d*$", out, re.MULTILINE), out
    return float(found[0])


def script(name: str, *flags: str) -> list[str]:
    return ["python", str(EXAMPLES / name), *flags]


def gated(name: str, gates: str, folder: Path, *flags: str) -> list[str]:
    """A script that stops at each of these steps until `open_gate`."""
    _, *words = script(name, "--folder", str(folder / "checkpoints"), *flags)
    return ["python", GATED, str(folder), gates, *words]


def open_gate(number: int, folder: Path) -> None:
    (folder / f"open-{number}").touch()


# ---- they learn


def test_devices_of_one_process() -> None:
    child = start([str(PREFIX / "bin/python"), *script("mirrored.py")[1:]], {**own_environment(), **QUIET})
    out, err = finish(child, LIMIT)
    assert child.returncode == 0 and "devices: 2" in out, out + err
    assert accuracy(out) > 0.9


@pytest.mark.long
def test_parameter_servers_of_tf1() -> None:
    out = run("-np", "2", "-ps", "1", *script(MONITORED))
    assert "workers: 2" in out and accuracy(out) > 0.9, out


@pytest.mark.long
def test_parameter_servers_of_tf1_in_step() -> None:
    words = ("-np", "2", "-ps", "2", "-tf-config", "chief")
    out = run(*words, *script(MONITORED, "--sync", "--steps", "200"))
    assert "workers: 2" in out and accuracy(out) > 0.85, out


@pytest.mark.long
def test_a_coordinator() -> None:
    out = run("-np", "3", "-ps", "1", "-tf-config", "chief", *script(COORDINATED))
    assert "workers: 2" in out and accuracy(out) > 0.9, out


def weights_of(folder: Path) -> list[np.ndarray]:
    """As the example has saved them."""
    with np.load(folder / "weights.npz") as file:
        return [file[name] for name in file.files]


def assert_same(some: list[np.ndarray], others: list[np.ndarray]) -> None:
    assert len(some) == len(others) == 4
    for one, other in zip(some, others, strict=True):
        assert np.abs(one).max() > 0.1
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_workers_in_step_equal_one_process_and_go_on_after_a_loss(tmp_path: Path) -> None:
    """The weights of two workers, one of them killed in the middle, are those of one process with the whole
    batch."""
    alone = tmp_path / "alone"
    words = script(MIRRORED_WORKERS, "--folder", str(alone))
    child = start([str(PREFIX / "bin/python"), *words[1:]], {**own_environment(), **QUIET})
    out, err = finish(child, LIMIT)
    assert child.returncode == 0 and "workers: 1" in out, out + err

    job = Job(
        "-np", "2", "-tf-config", "worker", "-max-restarts", "1", *gated(MIRRORED_WORKERS, "3", tmp_path)
    )
    job.await_line(r"worker 1 epoch 3 loss")
    job.kill("worker 1")
    open_gate(3, tmp_path)
    out, err = job.finish()
    assert "[WARN DDL-2-23] restart 1 of 1, after: rank 1 (worker 1) was killed by signal 9" in err
    assert "workers: 2" in out and accuracy(out) > 0.9
    epochs = [int(number) for number in re.findall(r"^worker 0 epoch (\d+) ", out, re.MULTILINE)]
    assert epochs[-1] == 19 and epochs.count(0) == 1, epochs  # continued, not begun again
    assert_same(weights_of(tmp_path / "checkpoints"), weights_of(alone))


# ---- they go on


@pytest.mark.long
def test_tf1_goes_on_after_the_loss_of_any_task(tmp_path: Path) -> None:
    words = ("-np", "2", "-ps", "1", "-max-restarts", "2")
    job = Job(*words, *gated(MONITORED, "100,200,300", tmp_path, "--steps", "500"))
    job.await_line(r"worker 1 step \d+")
    job.kill("worker 1")
    open_gate(100, tmp_path)
    job.await_line(r"worker 0 step 2\d\d ")  # which does not wait for it
    assert int(job.await_line(r"worker 1 begins at step (\d+)")[1]) >= 200

    job.kill("worker 0")  # the chief; its checkpoints are 20 steps apart
    assert int(job.await_line(r"worker 0 begins at step (\d+)")[1]) >= 160
    open_gate(200, tmp_path)

    job.await_line(r"worker 0 step 3\d\d ")
    job.kill("ps 0")
    open_gate(300, tmp_path)
    # by a new session of the same process
    assert int(job.await_line(r"worker 0 begins at step (\d+)")[1]) >= 260
    out, err = job.finish()
    assert re.findall(r"DDL-2-33\] (.*)", err) == [
        f"{task} on localhost ended with signal 9; started again (1 of 2)"
        for task in ("worker 1", "worker 0", "ps 0")
    ]
    assert accuracy(out) > 0.9


@pytest.mark.long
def test_a_coordinator_goes_on_after_the_loss_of_any_task(tmp_path: Path) -> None:
    words = ("-np", "3", "-ps", "1", "-tf-config", "chief", "-max-restarts", "3")
    job = Job(*words, *gated(COORDINATED, "100,200,300", tmp_path))
    job.await_line(r"chief 0 step 100 ")
    job.kill("worker 1")
    open_gate(100, tmp_path)
    # no second beginning before this: another worker does the steps
    job.await_line(r"chief 0 step 200 ")
    assert "".join(job.seen).count("chief 0 begins") == 1

    job.kill("chief 0")
    assert int(job.await_line(r"chief 0 begins at step (\d+)")[1]) >= 180
    open_gate(200, tmp_path)

    job.await_line(r"chief 0 step 300 ")
    job.kill("ps 0")
    open_gate(300, tmp_path)
    assert int(job.await_line(r"chief 0 begins at step (\d+)")[1]) >= 280
    out, err = job.finish()
    for task in ("worker 1", "chief 0", "ps 0"):
        assert f"{task} on localhost ended with signal 9; started again (1 of 3)" in err, err
    assert "chief 0 on localhost ended with exit code 1; started again (2 of 3)" in err
    assert accuracy(out) > 0.9
