"""Real trainings in short: speeds, examples, slow links, and what earlier calls measured."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from ddl_validate.trainings import drift_cost

ROOT = Path(__file__).resolve().parents[3]
PREFIX = Path(os.environ.get("DDL_TEST_PREFIX") or ROOT / "build/envs/powerai")
STEPS = ("--num-batches", "2", "--num-warmup-batches", "1", "--exchange-blocks", "2")
SHORT = ("--rounds", "1", "--batch-size", "2", *STEPS)
PARAMETERS = 61_706  # of LeNet


def command(work: str, output: Path, *arguments: str, env: Path = PREFIX) -> list[str]:
    words = [sys.executable, "-m", "ddl_validate.trainings", work, "--env", str(env)]
    return [*words, "--output", str(output), *arguments]


def train(work: str, output: Path, *arguments: str, rc: int = 0) -> subprocess.CompletedProcess[str]:
    words, env = command(work, output, *arguments), {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == rc, done.stdout + done.stderr
    return done


def methods(*names: str) -> list[str]:
    return [word for name in names for word in ("--method", name)]


def rows_of(output: Path) -> dict[str, dict[str, Any]]:
    return {row["method"]: row for row in json.loads(output.read_text())["rows"]}


def check_speed(images_per_second: float, ranks: int, seconds: float) -> None:
    """The two steps of two images of each rank (SHORT) fit into the seconds that the program took."""
    assert ranks * 2 * 2 / images_per_second < seconds


def needs_package(pattern: str) -> None:
    if not list(PREFIX.glob(f"conda-meta/{pattern}.json")):
        pytest.skip(f"no {pattern} in {PREFIX}")


def test_two_ranks_train_and_the_table_shows_it(tmp_path: Path) -> None:
    output = tmp_path / "scaling.json"
    more = ("--rounds", "1", "--num-batches", "10", "--exchange-blocks", "0", "--timeout", "200")
    done = train("resnet20", output, *methods("ddl"), "--ranks", "1", "2", *more)
    rows = json.loads(output.read_text())["rows"]
    assert [row["ranks"] for row in rows] == [1, 2]
    for row in rows:
        (speed,) = re.findall(r"^total images/sec: ([0-9.]+)$", Path(row["log"]).read_text(), re.MULTILINE)
        assert float(speed) == row["figures"]["images_per_sec"] and speed in done.stdout
        # 10 timed steps of 32 images a rank took less than the whole run, which no speed of 0 does
        assert row["ranks"] * 10 * 32 / float(speed) < row["samples"][0]["seconds"]
    alone, both = (row["figures"] for row in rows)
    assert alone["efficiency"] == 1
    assert both["efficiency"] == pytest.approx(both["images_per_sec"] / 2 / alone["images_per_sec"])
    assert rows[1]["samples"][0]["plan"]["size"] == 2
    assert alone["chose"] == "one rank: no communication" and "host(s)" in both["chose"]


def test_pytorch_trains_and_is_not_trained_twice(tmp_path: Path) -> None:
    needs_package("ddl-pytorch-*")
    output = tmp_path / "examples.json"
    first = train("examples", output, *methods("pytorch"))
    row = rows_of(output)["pytorch"]
    accuracy = row["figures"]["best_accuracy"]
    assert row["title"].startswith("PyTorch (pytorch 2") and row["ranks"] == 2 and 0.8 < accuracy <= 1
    log = (tmp_path / "logs/examples-pytorch-2-1.log").read_text()
    assert f"test accuracy {accuracy:.3f}" in log and f"{accuracy:.3f}" in first.stdout
    output.write_text(output.read_text().replace(row["samples"][0]["time"], "2026-01-02T03:04:05+00:00"))
    second = train("examples", output, *methods("pytorch"))
    assert "round 1" not in second.stdout and f"{accuracy:.3f}" in second.stdout
    # when it was trained, not when it was shown again
    assert rows_of(output)["pytorch"]["figures"]["time"] == "2026-01-02T03:04:05+00:00"
    other = train("examples", output, *methods("pytorch"), "--ranks", "1")
    assert "round 1 of 1: PyTorch: accuracy" in other.stdout


@pytest.mark.long
def test_tensorflow_and_horovod_and_what_was_measured_before(tmp_path: Path) -> None:
    needs_package("*horovod-[0-9]*")
    output = tmp_path / "speed.json"
    names = ("independent", "ddl", "horovod", "horovod-mpi", "horovodrun-mpi")
    work = (*methods(*names), "--env-mpi", str(tmp_path / "none"), *SHORT)
    start = time.monotonic()
    first = train("trivial", output, *work)
    seconds = time.monotonic() - start
    assert "no environment" in first.stdout and "wmlce env create horovod-mpi" in first.stdout
    rows = rows_of(output)
    assert set(rows) == {"independent", "ddl", "horovod"}
    for row in rows.values():
        assert len(row["samples"]) == 1
        check_speed(row["figures"]["images_per_sec"], 2, seconds)
    for name in ("ddl", "horovod"):
        figures = rows[name]["figures"]
        speed = figures["images_per_sec"]
        ratio = speed / rows["independent"]["figures"]["images_per_sec"]
        assert figures["parallel_efficiency"] == pytest.approx(ratio)
        log = (tmp_path / f"logs/trivial-{name}-2-1.log").read_text()
        (efficiency,) = re.findall("^speed kept with exchange: ([0-9.]+) ", log, re.MULTILINE)
        assert figures["communication_efficiency"] == float(efficiency) > 0
        assert f"Variables:   {name}" in log and f"total images/sec: {speed:.2f}" in log
    alone = (tmp_path / "logs/trivial-independent-2-1.log").read_text()
    assert len(re.findall("^total images/sec", alone, re.MULTILINE)) == 2

    assert "round 1" not in train("trivial", output, *work).stdout
    assert rows_of(output) == rows
    more = train("trivial", output, *work, "--rounds", "2")
    assert more.stdout.count("round 2 of 2") == 3
    shutil.copy(__file__, output)  # a broken file of results: it is measured again
    train("trivial", output, *methods("ddl"), *SHORT)
    assert len(rows_of(output)) == 1


@pytest.mark.long
def test_horovod_without_ddl_by_both_launchers(tmp_path: Path) -> None:
    if not (ROOT / "build/channel/channel.json").is_file():
        pytest.skip("no channel to install horovod-mpi from: wmlce channel build")
    create = [sys.executable, "-m", "wmlce", "--root", str(ROOT), "env", "create", "horovod-mpi"]
    made = subprocess.run(
        [*create, "horovod-mpi", "ddl", "tf-cnn-benchmarks"], capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 0, made.stdout + made.stderr
    output = tmp_path / "speed.json"
    env = ("--env-mpi", str(ROOT / "build/envs/horovod-mpi"))
    start = time.monotonic()
    train("trivial", output, *methods("horovod-mpi", "horovodrun-mpi"), *env, *SHORT)
    seconds = time.monotonic() - start
    rows = rows_of(output)
    assert rows["horovod-mpi"]["command"][0].endswith("/bin/ddlrun")
    assert rows["horovodrun-mpi"]["command"][3].endswith("/bin/horovodrun")
    for row in rows.values():
        check_speed(row["figures"]["images_per_sec"], 2, seconds)


@pytest.mark.long
def test_pytorch_on_emulated_hosts(able: None, tmp_path: Path) -> None:
    needs_package("ddl-pytorch-*")
    output = tmp_path / "speed.json"
    names = ("torch-independent", "torch-ddl", "torch-gloo")
    hosts = ("--hosts", "1,1", "--racks", "2", "--rate", "10gbit", "--uplink-rate", "10gbit")
    start = time.monotonic()
    train("alexnet", output, *hosts, *methods(*names), *SHORT)
    seconds = time.monotonic() - start
    place = json.loads(output.read_text())["place"]
    assert "2 emulated hosts" in place and "2 rack(s)" in place
    rows = rows_of(output)
    assert set(rows) == set(names)
    for name in ("torch-ddl", "torch-gloo"):
        # each direction of the 10 Gbit/s link carries the gradients of 61 million parameters once
        assert 0.9 * 4 * 61e6 / 1.25e9 < rows[name]["samples"][0]["alone"] < seconds
        assert rows[name]["figures"]["overlap"] is not None
        check_speed(rows[name]["figures"]["images_per_sec"], 2, seconds)
        assert f"--backend={name.removeprefix('torch-')}" in rows[name]["command"]
    assert "-topology" in " ".join(rows["torch-ddl"]["command"])


def test_on_two_racks(able: None, tmp_path: Path) -> None:
    """Bytes on the uplink are those of the gradients; a method that fails does not stop the others."""
    output = tmp_path / "digits.json"
    words = ["--hosts", "1,1", "--epochs", "2", "--rounds", "1"]
    done = train("digits", output, *words, *methods("torch-ddl", "torch-gloo"), "--timeout", "150")
    rows = rows_of(output)
    for name in ("torch-ddl", "torch-gloo"):
        (sample,), figures = rows[name]["samples"], rows[name]["figures"]
        # by the clock of whoever reads the lines: from the first step to the last evaluation
        seconds = sample["accuracies"][-1][0]
        assert 0.02 * seconds < sample["images"] / figures["images_per_sec"] < 1.1 * seconds
        assert sample["images"] == 2 * (1437 // 64) * 64
        assert 0.1 < figures["best_accuracy"] <= 1
        # each direction of the uplink carries all gradients once a step, and a step is 64 images
        assert 0.95 < figures["bytes_per_image"] / (4 * PARAMETERS / 64) < 1.6, name
    assert "PyTorch DDP, DDL" in done.stdout

    # what was measured stays; a method that fails is named, with its log, and the exit code tells
    again = train("digits", output, *words, *methods("horovod", "torch-ddl"), "--timeout", "1", rc=1)
    assert "gave no result: Horovod with DDL" in again.stderr, again
    assert "exceeded its 1 s; log " in again.stderr
    after = rows_of(output)
    assert after["torch-ddl"] == rows["torch-ddl"]
    assert after["horovod"]["error"] and not after["horovod"]["samples"]


def test_a_failed_run_names_method_and_log(tmp_path: Path) -> None:
    run = train("alexnett", tmp_path / "speed.json", *methods("ddl"), *SHORT, rc=1)
    assert "Traceback" not in run.stderr
    assert "DDL, TensorFlow, alexnett" in run.stderr and "alexnett-ddl-2-1.log" in run.stderr
    assert "alexnet" in run.stderr.replace("alexnett", "")  # the program's own words


def test_ended_by_a_scheduler_it_ends_the_training(tmp_path: Path) -> None:
    steps = str(10**9 + os.getpid())  # by which its processes are known
    words = command("trivial", tmp_path / "speed.json", *methods("ddl"), "--num-batches", steps)
    log = tmp_path / "logs/trivial-ddl-2-1.log"
    tool = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        _until(lambda: log.is_file() and "Done warm up" in log.read_text(errors="replace"), 120)
        assert _processes_with(f"--num_batches={steps}")
        tool.terminate()
        assert tool.wait(60) == 128 + signal.SIGTERM
        _until(lambda: not _processes_with(f"--num_batches={steps}"), 30)
    finally:
        for process in _processes_with(f"--num_batches={steps}"):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        tool.kill()
        tool.wait(10)


def _until(holds: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:.0f} s"
        time.sleep(0.2)


def _processes_with(word: str) -> list[psutil.Process]:
    processes = psutil.process_iter(["cmdline"])
    return [process for process in processes if word in (process.info["cmdline"] or ())]


def test_what_the_comparison_of_weights_costs() -> None:
    for framework in drift_cost.TITLES:
        figures = drift_cost.measure(PREFIX, framework, steps=4, batch=2, turns=1)
        assert 0 < figures["share"] < 1 and figures["step_s"] > 0, (framework, figures)


def test_the_page_has_the_cost_that_was_recorded() -> None:
    """And says so where it has changed since: `python -m ddl_validate.trainings.drift_cost --page`."""
    assert drift_cost.MEASURED.page.read_text() == drift_cost.MEASURED.page_text()
