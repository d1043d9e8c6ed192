"""TensorFlowOnSpark: both ways to the data, the rest of its interface, and lost executors and drivers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from spark_programs import PROGRAMS, Job, Spark, shared_cluster

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
pytestmark = pytest.mark.slow
_EXECUTOR = b"CoarseGrainedExecutorBackend"


def processes_of(cluster: Spark, word: bytes) -> list[int]:
    """Live processes with this word in their command that use the cluster."""
    mark = f"SPARK_CONF_DIR={cluster.of_cluster['SPARK_CONF_DIR']}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    command = Path(f"/proc/{name}/cmdline").read_bytes()
                    found += [int(name)] if word in command else []
            except OSError:
                continue
    return sorted(found)


def wait(what: str, look: Callable[[], object], child: subprocess.Popen[str] | None = None) -> None:
    until = time.monotonic() + 240
    while not look():
        assert time.monotonic() < until, f"not within 240 s: {what}"
        assert child is None or child.poll() is None, f"ended before: {what}"
        time.sleep(0.2)


def epochs(folder: Path) -> list[int]:
    file = folder / "epochs.txt"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.mark.long
def test_executors_read_the_data(cluster: Spark, tmp_path: Path) -> None:
    done = cluster.run(str(EXAMPLES / "tfos_tensorflow.py"), "--folder", str(tmp_path), "--epochs", "2")
    assert done.status == 0, done.err
    assert float(done.value("accuracy")) > 0.7 and float(done.value("images/sec")) > 0
    assert epochs(tmp_path) == [0, 1]


@pytest.mark.long
def test_spark_feeds_the_data(cluster: Spark, tmp_path: Path) -> None:
    """And predictions are rows again, in their order: the accuracy is counted from them. What is left over is
    less than a batch, for which nobody may wait."""
    words = [str(EXAMPLES / "tfos_spark.py"), "--folder", str(tmp_path)]
    done = cluster.run(*words, "--epochs", "2", "--batch", "300", "--rate", "0.02")
    assert done.status == 0, done.err
    assert float(done.value("accuracy")) > 0.7 and float(done.value("images/sec")) > 0


@pytest.mark.long
def test_parallel_pipeline_and_records(cluster: Spark, tmp_path: Path) -> None:
    done = cluster.run(str(PROGRAMS / "tfos_api.py"), str(tmp_path), limit=300)
    assert done.status == 0, done.err
    assert done.value("alone False") == done.value("alone True") == "['2 10.0', '2 10.0']"
    assert float(done.value("largest difference")) < 1e-5
    assert done.value("records") == "True 40 True"


@pytest.mark.long
def test_training_goes_on_after_a_lost_executor(cluster: Spark, tmp_path: Path) -> None:
    words = [str(EXAMPLES / "tfos_tensorflow.py"), "--folder", str(tmp_path), "--epochs", "6"]
    with cluster.start(*words, "--pause", "1") as child:
        try:
            wait("two epochs", lambda: len(epochs(tmp_path)) >= 2, child)
            lost = processes_of(cluster, _EXECUTOR)
            assert len(lost) == 2, lost
            os.kill(lost[0], signal.SIGKILL)
            out, err = child.communicate(timeout=240)
        finally:
            child.kill()
    assert child.returncode == 0, out + err
    # each epoch once, or the one that was cut off twice: it did not begin anew
    assert sorted(set(epochs(tmp_path))) == list(range(6)) and len(epochs(tmp_path)) <= 7
    assert "accuracy: " in out
    again = cluster.run(*words)
    assert again.status == 0, again.err
    assert "has all 6 epochs already" in again.out and "images/sec" not in again.out


@pytest.fixture(scope="module")
def three(spark_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """A cluster of three workers: a coordinator, a parameter server, and a worker of TensorFlow."""
    with shared_cluster(spark_prefix, tmp_path_factory.mktemp("three"), "--workers", "3") as made:
        yield made


def rounds(folder: Path) -> list[int]:
    file = folder / "rounds.txt"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def executor_of(cluster: Spark, role: str) -> int:
    """The process of Spark's executor in which this node of TensorFlow runs, of the latest program."""
    work = Path(cluster.of_cluster["SPARK_CONF_DIR"]).parent / "work"
    latest = max(work.glob("*/app-*"), key=os.path.getmtime).name
    logs = list(work.glob(f"*/{latest}/*/stderr"))
    (number,) = [log.parent.name for log in logs if f"Starting TensorFlow {role}:0" in log.read_text()]
    for pid in processes_of(cluster, _EXECUTOR):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if words[words.index("--executor-id") + 1] == number:
            return pid
    raise AssertionError(f"no executor {number}")


@pytest.mark.long
@pytest.mark.parametrize("role", [None, "worker", "chief", "ps"])
def test_parameter_servers(three: Spark, tmp_path: Path, role: str | None) -> None:
    """Undisturbed, and after the loss of any node."""
    words = [str(EXAMPLES / "tfos_parameter_servers.py"), "--folder", str(tmp_path)]
    with three.start(*words, *(["--pause", "1"] if role else [])) as child:
        try:
            if role:
                wait("three rounds", lambda: len(rounds(tmp_path)) >= 3, child)
                os.kill(executor_of(three, role), signal.SIGKILL)
            out, err = child.communicate(timeout=400)
        finally:
            child.kill()
    assert child.returncode == 0, out + err
    done = Job(child.returncode, out, err)
    assert (done.value("servers"), done.value("workers")) == ("1", "1")
    assert float(done.value("accuracy")) > 0.85 and float(done.value("images/sec")) > 0
    reached = rounds(tmp_path)
    # It did not begin anew: at most the round that was cut off is there twice.
    assert reached[0] == 20 and reached[-1] == 400 and len(reached) <= 21, reached
    assert not list(tmp_path.glob("complete-*"))


@pytest.mark.long
def test_other_nodes(cluster: Spark, tmp_path: Path) -> None:
    done = cluster.run(str(PROGRAMS / "tfos_roles.py"), str(tmp_path), limit=500)
    assert done.status == 0, done.out + done.err
    assert done.value("evaluator") == "['chief', 'evaluator']"
    assert done.value("tensorboard") == "True"
    assert done.value("server in the driver") == "['ps', 'worker']"


@pytest.mark.long
def test_spark_feeds_workers_of_a_parameter_server_and_streams(three: Spark, tmp_path: Path) -> None:
    done = three.run(str(PROGRAMS / "tfos_feeds.py"), str(tmp_path), limit=500)
    assert done.status == 0, done.out + done.err
    own = json.loads(done.value("own steps"))
    assert len(own) == 2 and min(own) > 0 and sum(own) == int(done.value("steps"))
    for weight, bias in json.loads(done.value("weights")):
        assert abs(weight - 3) < 1e-2 and abs(bias + 2) < 1e-2
    assert done.value("devices") == "/job:ps/task:0"
    taken = json.loads(done.value("taken"))
    # Which of them the stream comes to is chance, and it ends when one has had enough.
    assert max(len(numbers) for numbers in taken) == 30, taken
    everything = [number for numbers in taken for number in numbers]
    assert len(everything) == len(set(everything)) and set(everything) <= set(range(240))


@pytest.mark.long
def test_feeding_fails_after_a_lost_executor(cluster: Spark, tmp_path: Path) -> None:
    """Spark starts another executor, but TensorFlow does not run beside it. What counts is that it ends."""
    words = [str(EXAMPLES / "tfos_spark.py"), "--folder", str(tmp_path), "--epochs", "50"]
    with cluster.start(*words) as child:
        try:
            work = Path(cluster.of_cluster["SPARK_CONF_DIR"]).parent / "work"
            fed = "Feeding partition"
            logs = lambda: max(work.glob("*/app-*"), key=os.path.getmtime).name  # noqa: E731
            before = {path.name for path in work.glob("*/app-*")}
            wait("its start", lambda: logs() not in before, child)
            mine = logs()
            wait(
                "the first rows",
                lambda: sum(fed in p.read_text() for p in work.glob(f"*/{mine}/*/stderr")) == 2,
                child,
            )
            os.kill(processes_of(cluster, _EXECUTOR)[0], signal.SIGKILL)
            out, err = child.communicate(timeout=240)
        finally:
            child.kill()
    assert child.returncode == 1, out + err
    assert "No executor_id file found on this node" in err and "accuracy" not in out


@pytest.mark.long
def test_executors_end_with_the_driver(cluster: Spark, tmp_path: Path) -> None:
    words = [str(EXAMPLES / "tfos_tensorflow.py"), "--folder", str(tmp_path), "--epochs", "500"]
    with cluster.start(*words, "--pause", "0.5") as child:
        wait("an epoch", lambda: epochs(tmp_path), child)
        assert processes_of(cluster, _EXECUTOR)
        child.kill()
    wait("the end of the executors", lambda: not processes_of(cluster, _EXECUTOR))
    wait("the end of their Python", lambda: not processes_of(cluster, b"pyspark.daemon"))
