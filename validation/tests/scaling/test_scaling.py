"""The scaling runner: reads what the benchmark prints, and says what went wrong when it does not print it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddl_validate.common.benchmark import read_output
from ddl_validate.common.models import data_of
from ddl_validate.common.running import RunFailed
from ddl_validate.scaling.__main__ import describe_plan, efficiency, main
from ddl_validate.scaling.run import Run, run

ROOT = Path(__file__).resolve().parents[3]
OUTPUT = """\
Step\tImg/sec\ttotal_loss
1\timages/sec: 416.7 +/- 0.0 (jitter = 0.0)\t17.292
10\timages/sec: 400.1 +/- 2.5 (jitter = 3.25)\tnan
----------------------------------------------------------------
total images/sec: 371.39
----------------------------------------------------------------
"""


def test_every_model_is_trained_on_data_that_it_is_made_for() -> None:
    listed = subprocess.run(
        [
            sys.executable,
            "-c",
            "import json; from tf_cnn_benchmarks.models import MODELS as m\n"
            "print(json.dumps({data: list(models) for data, models in m.items()}))",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT / "validation/programs/tf_cnn_benchmarks/src")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    models = json.loads(listed.stdout)
    assert {"densenet100_k24", "resnet110_v2"} <= set(models["cifar10"])
    for model in {*models["imagenet"], *models["cifar10"]}:
        assert model in models[data_of(model)], model


def test_output_of_a_run_is_read() -> None:
    output = read_output("noise\n" + OUTPUT)
    total, steps = output.speed, output.steps
    assert output.alone is None and output.communication_efficiency is None
    assert total == 371.39
    assert [(step.step, step.images_per_sec, step.uncertainty, step.jitter) for step in steps] == [
        (1, 416.7, 0.0, 0.0),
        (10, 400.1, 2.5, 3.25),
    ]
    assert steps[0].loss == 17.292 and steps[1].loss != steps[1].loss


def test_output_without_a_total_is_refused() -> None:
    with pytest.raises(ValueError, match="total images/sec"):
        read_output(OUTPUT.replace("total", "partial"))


def test_efficiency_is_relative_to_the_smallest_run() -> None:
    runs = [Run(2, 100.0, 1, [], ""), Run(4, 150.0, 1, [], "")]
    assert efficiency(runs, runs[0]) == 1.0
    assert efficiency(runs, runs[1]) == 0.75


def test_plan_of_one_rank_and_of_none() -> None:
    assert describe_plan({}) == "-"
    assert describe_plan({"size": 1}) == "one rank: no communication"


def test_plan_of_two_ranks_names_algorithm_and_transport() -> None:
    plan = {
        "size": 2,
        "last": {"algorithm": "ring"},
        "topology": {"hosts": [{"name": "a"}, {"name": "b"}]},
        "transports": ["shared memory", "MPI"],
    }
    assert describe_plan(plan) == "ring; 2 host(s), shared memory and MPI"


def fake_environment(folder: Path, body: str) -> Path:
    """An environment whose ddlrun is a script: for what a broken run looks like, not for results."""
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / "ddlrun"
    script.write_text(f"#!{sys.executable}\n{body}")
    script.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("print('all is lost'); raise SystemExit(3)", "exit code 3"),
        ("print('nothing to see')", "0 line\\(s\\) 'total images/sec:' where there should be 1"),
        ("import time; print('slow', flush=True); time.sleep(60)", "exceeded its 2 s"),
    ],
)
def test_a_failed_run_names_log_and_last_lines(tmp_path: Path, body: str, says: str) -> None:
    env = fake_environment(tmp_path / "env", body)
    log = tmp_path / "run.log"
    with pytest.raises(RunFailed, match=says) as caught:
        run(env, 2, [], log, timeout=2)
    assert str(log) in str(caught.value)
    assert log.read_text().split()[0] in str(caught.value)


def test_unknown_environment_says_what_to_run(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "ddl_validate.scaling", "--env", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 2 and "wmlce env create powerai" in result.stderr


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_device_reaches_the_program(tmp_path: Path, device: str) -> None:
    env = fake_environment(tmp_path / "env", "import sys; print(*sys.argv); print('total images/sec: 10.5')")
    output = tmp_path / "scaling.json"
    words = ["--env", str(env), "--ranks", "1", "--output", str(output)]
    chosen = [] if device == "cpu" else ["--device", device]
    assert main([*words, *chosen]) == 0
    data = json.loads(output.read_text())
    assert f"--device={device}" in data["runs"][0]["command"] and data["device"] == device
    assert f"--device={device}" in Path(data["runs"][0]["log"]).read_text().split()


def test_two_ranks_train_and_the_table_shows_it(tmp_path: Path) -> None:
    prefix = Path(os.environ.get("DDL_TEST_PREFIX", ROOT / "build" / "envs" / "powerai"))
    output = tmp_path / "scaling.json"
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "ddl_validate.scaling",
            "--env",
            str(prefix),
            "--model",
            "trivial",
            "--data-name",
            "cifar10",
            "--num-batches",
            "10",
            "--ranks",
            "1",
            "2",
            "--output",
            str(output),
            "--timeout",
            "200",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=450,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    data = json.loads(output.read_text())
    assert [one["ranks"] for one in data["runs"]] == [1, 2]
    speed = {}
    for one in data["runs"]:
        output = read_output(Path(one["log"]).read_text())
        total, steps = output.speed, output.steps
        assert total == one["images_per_sec"]
        assert f"{total:.2f}" in result.stdout
        assert [step.step for step in steps] == [1, 10]
        # 10 timed steps of 32 images a rank took less than the whole run, which no speed of 0 does
        assert one["ranks"] * 10 * 32 / total < one["seconds"]
        speed[one["ranks"]] = total
    assert data["runs"][0]["efficiency"] == 1
    assert data["runs"][1]["efficiency"] == pytest.approx(speed[2] / (2 * speed[1]))
    assert data["runs"][1]["plan"]["size"] == 2
    assert data["runs"][1]["chose"] not in ("-", data["runs"][0]["chose"])
