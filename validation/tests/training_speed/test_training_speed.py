"""Training speeds side by side: real trainings in short, the figures made of them, and what goes wrong."""

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
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from ddl_validate.cluster import missing_requirements
from ddl_validate.common.benchmark import read_output
from ddl_validate.training_speed.configurations import ALL, baseline_of, named
from ddl_validate.training_speed.measure import Row, Work, figures

ROOT = Path(__file__).resolve().parents[3]
PREFIX = Path(os.environ.get("DDL_TEST_PREFIX") or ROOT / "build/envs/powerai")
STEPS = ("--num-batches", "2", "--num-warmup-batches", "1", "--exchange-blocks", "2")
SHORT = ("--rounds", "1", "--batch-size", "2", *STEPS)


def speed(env: Path, output: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "ddl_validate.training_speed", "--env", str(env), "--output", str(output)]
    return subprocess.run(
        [*words, *arguments],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=500,
    )


def check_speed(images_per_second: float, ranks: int, seconds: float) -> None:
    """The two steps of two images of each rank (SHORT) fit into the seconds that the program took."""
    assert ranks * 2 * 2 / images_per_second < seconds


def asked(*names: str) -> list[str]:
    return [word for name in names for word in ("--configuration", name)]


def row(configuration: str, *speeds: float, alone: float | None = None) -> Row:
    return Row(configuration, "alexnet", 4, 2, list(speeds), [alone] if alone else [])


def test_figures_of_tensorflow() -> None:
    # 8 images a step: 1 s without communication, 2 s, 1.6 s and 4 s with it
    rows = [row("independent", 8), row("ddl", 4), row("ddl-groups", 5), row("horovod", 2)]
    limit, ddl, groups, horovod = figures(rows)
    assert limit.row.step_seconds == 1 and limit.parallel_efficiency is None and limit.exchange is None
    assert (ddl.parallel_efficiency, ddl.ddl_ahead, ddl.exchange, ddl.overlap) == (0.5, None, 1, None)
    assert groups.exchange == pytest.approx(0.6) and groups.overlap == pytest.approx(0.4)
    assert (horovod.parallel_efficiency, horovod.ddl_ahead, horovod.overlap) == (0.25, 2, None)


def test_communication_efficiency_is_the_median_of_the_rounds() -> None:
    measured = Row("ddl", "alexnet", 4, 2, [4, 5, 6], shares=[0.9, 0.8, 0.95])
    assert [one.communication_efficiency for one in figures([row("independent", 8), measured])] == [None, 0.9]


def test_ratios_are_medians_of_rounds_not_of_a_machine_that_drifts() -> None:
    # Half as fast in every round, while the machine becomes slower; one round has not been finished.
    limit, ddl, horovod = figures([row("independent", 8, 4, 2, 1), row("ddl", 4, 2, 1), row("horovod", 2, 1)])
    assert (limit.row.median, ddl.row.median, horovod.row.median) == (3, 2, 1.5)
    assert (ddl.parallel_efficiency, horovod.parallel_efficiency, horovod.ddl_ahead) == (0.5, 0.25, 2)
    assert ddl.exchange == 2 and horovod.exchange == pytest.approx((3 + 6) / 2)


def test_figures_of_pytorch_have_their_own_baseline() -> None:
    rows = [
        row("ddl", 100),
        row("torch-independent", 8),
        row("torch-ddl", 4, alone=1.5),
        row("torch-gloo", 2),
    ]
    _, _, ddl, gloo = figures(rows)
    assert ddl.overlap == pytest.approx(0.5) and ddl.parallel_efficiency == 0.5
    assert gloo.ddl_ahead == 2 and gloo.overlap is None


def test_a_side_that_was_not_measured_gives_no_ratio() -> None:
    (only,) = figures([row("horovod", 4), Row("ddl", "alexnet", 4, 2)])
    assert (only.parallel_efficiency, only.ddl_ahead, only.exchange, only.overlap) == (None, None, None, None)


def test_totals_are_summed_and_counted() -> None:
    text = "total images/sec: 1.5\nx total images/sec: 7\n[1,0]<stdout>:total images/sec: 2.25\n"
    assert read_output(text, 2).speed == 3.75
    with pytest.raises(ValueError, match="2 line"):
        read_output(text, 1)


def test_every_configuration_has_a_baseline_and_a_program() -> None:
    work = Work("alexnet", "imagenet", 4, 2, 1)
    for configuration in ALL:
        baseline = named(baseline_of(configuration))
        assert baseline.independent and baseline.program == configuration.program
        words = work.program(configuration)
        batch = "--batch-size=4" if configuration.program == "pytorch" else "--batch_size=4"
        assert batch in words and "--device=cpu" in words and configuration.trains("alexnet")
        assert "--device=gpu" in replace(work, device="gpu").program(configuration)
        blocks = [
            word for word in replace(work, blocks=7).program(configuration) if "exchange_blocks" in word
        ]
        exchanges = configuration.program == "tensorflow" and not configuration.independent
        assert blocks == (["--exchange_blocks=7"] if exchanges else [])
    assert not named("torch-ddl").trains("resnet20")


@pytest.mark.long
def test_tensorflow_and_horovod_and_what_was_measured_before(tmp_path: Path) -> None:
    if not list(PREFIX.glob("conda-meta/*horovod-[0-9]*.json")):
        pytest.skip(f"no horovod in {PREFIX}")
    output = tmp_path / "speed.json"
    names = ("independent", "ddl", "horovod", "horovod-mpi", "horovodrun-mpi")
    work = (*asked(*names), "--model", "trivial", "--env-mpi", str(tmp_path / "none"), *SHORT)
    start = time.monotonic()
    first = speed(PREFIX, output, *work)
    seconds = time.monotonic() - start
    assert first.returncode == 0, first.stdout + first.stderr
    assert "no environment" in first.stdout and "wmlce env create horovod-mpi" in first.stdout
    document = json.loads(output.read_text())
    rows = {found["configuration"]: found for found in document["rows"]}
    assert set(rows) == {"independent", "ddl", "horovod"} and document["kind"] == "training-speed"
    for row in rows.values():
        assert len(row["speeds"]) == 1
        check_speed(row["median"], 2, seconds)
    for name in ("ddl", "horovod"):
        ratio = rows[name]["median"] / rows["independent"]["median"]
        assert rows[name]["parallel_efficiency"] == pytest.approx(ratio)
        log = (tmp_path / f"logs/speed-trivial-{name}-1.log").read_text()
        (efficiency,) = re.findall("^speed kept with exchange: ([0-9.]+) ", log, re.MULTILINE)
        assert rows[name]["communication_efficiency"] == float(efficiency) > 0
        assert f"Variables:   {name}" in log and f"total images/sec: {rows[name]['median']:.2f}" in log
    alone = (tmp_path / "logs/speed-trivial-independent-1.log").read_text()
    assert len(re.findall("^total images/sec", alone, re.MULTILINE)) == 2

    again = speed(PREFIX, output, *work)
    assert again.returncode == 0 and "round 1" not in again.stdout, again.stdout + again.stderr
    assert json.loads(output.read_text())["rows"] == document["rows"]
    more = speed(PREFIX, output, *work, "--rounds", "2", *asked("ddl"))
    assert more.returncode == 0 and more.stdout.count("round 2 of 2") == 3, more.stdout + more.stderr


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
    run = speed(PREFIX, output, *asked("horovod-mpi", "horovodrun-mpi"), "--model", "trivial", *env, *SHORT)
    seconds = time.monotonic() - start
    assert run.returncode == 0, run.stdout + run.stderr
    ours, its = json.loads(output.read_text())["rows"]
    assert ours["command"][0].endswith("/bin/ddlrun")
    assert its["command"][3].endswith("/bin/horovodrun")
    for row in (ours, its):
        check_speed(row["median"], 2, seconds)


@pytest.mark.long
def test_pytorch_on_emulated_hosts(tmp_path: Path) -> None:
    if reasons := missing_requirements():
        pytest.skip(f"no hosts can be emulated here: {'; '.join(reasons)}")
    if not list(PREFIX.glob("conda-meta/ddl-pytorch-*.json")):
        pytest.skip(f"no ddl-pytorch in {PREFIX}")
    output = tmp_path / "speed.json"
    names = ("torch-independent", "torch-ddl", "torch-gloo")
    hosts = ("--hosts", "1,1", "--racks", "2", "--rate", "10gbit", "--uplink-rate", "10gbit")
    start = time.monotonic()
    run = speed(PREFIX, output, *hosts, *asked(*names), "--model", "alexnet", *SHORT)
    seconds = time.monotonic() - start
    assert run.returncode == 0, run.stdout + run.stderr
    document = json.loads(output.read_text())
    assert "2 emulated hosts" in document["place"] and "2 rack(s)" in document["place"]
    rows = {found["configuration"]: found for found in document["rows"]}
    assert set(rows) == set(names)
    for name in ("torch-ddl", "torch-gloo"):
        # each direction of the 10 Gbit/s link carries the gradients of 61 million parameters once
        assert (
            0.9 * 4 * 61e6 / 1.25e9 < rows[name]["alone"][0] < seconds and rows[name]["overlap"] is not None
        )
        check_speed(rows[name]["median"], 2, seconds)
        assert f"--backend={named(name).sharing}" in rows[name]["command"]
    assert "-topology" in " ".join(rows["torch-ddl"]["command"])


def test_a_failed_run_names_configuration_and_log(tmp_path: Path) -> None:
    run = speed(PREFIX, tmp_path / "speed.json", *asked("ddl"), "--model", "alexnett", *SHORT)
    assert run.returncode == 1 and "Traceback" not in run.stderr
    assert "DDL, alexnett" in run.stderr and "speed-alexnett-ddl-1.log" in run.stderr
    assert "alexnet" in run.stderr.replace("alexnett", "")  # the program's own words


def test_ended_by_a_scheduler_it_ends_the_training(tmp_path: Path) -> None:
    steps = str(10**9 + os.getpid())  # by which its processes are known
    words = [sys.executable, "-m", "ddl_validate.training_speed", "--env", str(PREFIX), "--model", "trivial"]
    more = [*asked("ddl"), "--num-batches", steps, "--output", str(tmp_path / "speed.json")]
    log = tmp_path / "logs/speed-trivial-ddl-1.log"
    tool = subprocess.Popen([*words, *more], cwd=ROOT, stdout=subprocess.DEVNULL)
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
    return [
        process for process in psutil.process_iter(["cmdline"]) if word in (process.info["cmdline"] or ())
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--hosts", "2,x"], "--hosts 2,x: write the ranks of each host"),
        (["--hosts", "2,2", "--racks", "3"], "3 racks for 2 host"),
        (["--device", "tpu"], "--device: invalid choice"),
        (["--rounds", "0"], "--rounds: at least 1"),
        (["--num-batches", "0"], "--num-batches: at least 1"),
        (["--configuration", "nccl"], "invalid choice"),
        (["--env", "/nowhere"], "wmlce env create powerai"),
    ],
)
def test_wrong_options(tmp_path: Path, arguments: list[str], says: str) -> None:
    run = speed(PREFIX, tmp_path / "speed.json", *arguments)
    assert run.returncode == 2 and says in run.stderr and not list(tmp_path.iterdir())


@pytest.mark.long
def test_a_broken_file_of_results_is_measured_again(tmp_path: Path) -> None:
    shutil.copy(__file__, tmp_path / "speed.json")
    run = speed(PREFIX, tmp_path / "speed.json", *asked("ddl"), "--model", "trivial", *SHORT)
    assert run.returncode == 0 and len(json.loads((tmp_path / "speed.json").read_text())["rows"]) == 1
