"""Trainings side by side: what a run is asked, what is read of it, the figures, and the document."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from program_runner import run_program

from ddl_validate.allreduce.place import Place
from ddl_validate.common.environment import missing_modules
from ddl_validate.common.models import data_of
from ddl_validate.common.running import RunFailed
from ddl_validate.trainings import cli
from ddl_validate.trainings.document import Document, Row, read
from ddl_validate.trainings.figures import busiest, cells_of, describe_plan, figures_of, write
from ddl_validate.trainings.methods import COUNTERPARTS, EXAMPLES, METHODS
from ddl_validate.trainings.run import Sample, measure
from ddl_validate.trainings.works import Work

ROOT = Path(__file__).resolve().parents[3]
DIGITS = Work("digits", "digits", 32, epochs=3, rate=0.08)
ALEXNET = Work("synthetic", "alexnet", 4, steps=2, warmup=1, blocks=7)
HEAD = {
    "time": "2026-01-01T00:00:00+00:00",
    "host": {"name": "a", "processor": "b", "cores": 2, "system": "c"},
    "place": "4 emulated hosts",
    "racks": 2,
    "works": {"digits": {"text": "LeNet"}, "alexnet": {"text": "AlexNet"}},
    "accuracy": 0.95,
    "left_out": ["Large Model Support: env has no lms"],
    "identity": "x",
}


def say(folder: Path, *lines: str, rc: int = 0) -> list[str]:
    """A program that prints the lines, and a moment passes before each."""
    program = folder / "say.py"
    prints = "".join(f"time.sleep(0.05); print({line!r}, flush=True)\n" for line in lines)
    program.write_text(f"import time\n{prints}raise SystemExit({rc})\n")
    return [sys.executable, str(program)]


def run(folder: Path, kind: Any, *lines: str, ranks: int = 2, rc: int = 0, **others: Any) -> Sample:
    return measure(say(folder, *lines, rc=rc), folder / "log", 30, "a way", kind, ranks=ranks, **others)


def test_a_run_on_digits_is_read(tmp_path: Path) -> None:
    counts = iter([{"rack0 out": 100, "rack0 in": 40}, {"rack0 out": 1100, "rack0 in": 2040}])
    sample = run(
        tmp_path,
        "digits",
        "Batch size:  64 global",
        "Num batches: 10",
        "Accuracy @ 1 = 0.9900",
        "Running warm up",
        "Accuracy @ 1 = 0.5000 Accuracy @ 5 = 0.9000 [360 examples]",
        "Accuracy @ 1 = 0.9600",
        "Accuracy @ 1 = 0.9100",
        "total images/sec: 123.50",
        counters=lambda: next(counts),
    )
    assert (sample.images_per_sec, sample.images) == (123.5, 640)
    # what was said before the first step is not of this training
    assert [value for _, value in sample.accuracies] == [0.5, 0.96, 0.91]
    assert sample.accuracies[0][0] < sample.accuracies[1][0] < sample.seconds
    assert sample.carried == {"rack0 out": 1000, "rack0 in": 2000}


def test_steps_of_asynchronous_ranks_count_one_by_one(tmp_path: Path) -> None:
    header = ["Batch size:  64 global", "             32 per device", "Num batches: 10", "Sync:        False"]
    lines = ["Running warm up", "Accuracy @ 1 = 0.5", "total images/sec: 1.00"]
    assert run(tmp_path, "digits", *header, *lines).images == 320
    header[-1] = "Sync:        True"
    assert run(tmp_path, "digits", *header, *lines).images == 640


def test_a_run_on_synthetic_images_is_read(tmp_path: Path) -> None:
    lines = ["total images/sec: 1.5", "x total images/sec: 7", "[1,0]<stdout>:total images/sec: 2.25"]
    more = ["exchange alone sec: 0.25", "speed kept with exchange: 0.93 of it", '{"ddl": {"size": 2}}']
    sample = run(tmp_path, "synthetic", *lines, *more, processes=2)
    assert (sample.images_per_sec, sample.alone, sample.efficiency) == (3.75, 0.25, 0.93)
    assert sample.plan == {"size": 2} and sample.accuracies == []
    with pytest.raises(RunFailed, match=r"1 line\(s\) 'total images/sec:', but 2; log"):
        run(tmp_path, "synthetic", *lines)


@pytest.mark.parametrize(
    "lost", ["Running warm up", "total images/sec: 1.00", "Accuracy @ 1 = 0.5", "trained images: 7"]
)
def test_a_run_that_does_not_say_all_is_no_result(lost: str, tmp_path: Path) -> None:
    lines = ["Running warm up", "Accuracy @ 1 = 0.5", "trained images: 7", "total images/sec: 1.00"]
    assert run(tmp_path, "digits", *lines).images == 7
    lines.remove(lost)
    with pytest.raises(RunFailed, match=r"should have printed .*; log"):
        run(tmp_path, "digits", *lines)


def test_an_example_prints_its_accuracy_once(tmp_path: Path) -> None:
    line = "ranks 2  test accuracy 0.9"
    assert [value for _, value in run(tmp_path, "examples", line).accuracies] == [0.9]
    for lines in ([line, line], [line.replace("2", "1")], ["nothing to see"]):
        with pytest.raises(RunFailed, match=r"the accuracy of 2 rank\(s\) once") as caught:
            run(tmp_path, "examples", *lines)
        assert str(tmp_path / "log") in str(caught.value) and lines[-1] in str(caught.value)


def test_a_failed_run_names_log_and_last_lines(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="a way ended with exit code 3") as caught:
        run(tmp_path, "synthetic", "all is lost", rc=3)
    assert str(tmp_path / "log") in str(caught.value) and "all is lost" in str(caught.value)
    command = [sys.executable, "-c", "import time; print('slow', flush=True); time.sleep(60)"]
    with pytest.raises(RunFailed, match="exceeded its 1 s") as caught:
        measure(command, tmp_path / "log", 1, "a way", "synthetic", ranks=2)
    assert "slow" in str(caught.value)


def test_the_slowest_link() -> None:
    carried = {"h1 out": 9, "h1 in": 2, "rack0 out": 3, "rack0 in": 4}
    assert busiest(carried, racks=2) == ("rack0 in", 4)
    assert busiest({"h1 out": 9, "h1 in": 2}, racks=1) == ("h1 out", 9)
    assert busiest({}, racks=2) is None


def test_every_model_is_trained_on_data_that_it_is_made_for() -> None:
    code = (
        "import json; from tf_cnn_benchmarks.models import MODELS as m\n"
        "print(json.dumps({data: list(models) for data, models in m.items()}))"
    )
    source = str(ROOT / "validation/programs/tf_cnn_benchmarks/src")
    models = json.loads(run_program([sys.executable, "-c", code], 60, PYTHONPATH=source).ok().out)
    assert {"densenet100_k24", "resnet110_v2"} <= set(models["cifar10"])
    for model in {*models["imagenet"], *models["cifar10"]}:
        assert model in models[data_of(model)], model


def test_methods(tmp_path: Path) -> None:
    assert len({method.title for method in METHODS.values()}) == len(METHODS)
    pages = {"digits": "cluster/compare.md", "examples": "cluster/compare.md"}
    pages["synthetic"] = "reference/training-speed.md"
    for name, method in METHODS.items():
        for kind in method.kinds:
            page = (ROOT / "docs" / pages[kind]).read_text()
            assert re.search(rf"^\| (`[a-z0-9-]+`, )?`{name}`(, `[a-z0-9-]+`)? \|", page, re.MULTILINE), name
        assert missing_modules(method.packages, tmp_path) == list(method.packages) != []
        for word in method.program(replace(DIGITS, kind=method.kinds[-1]), 2):
            assert not word.endswith(".py") or Path(word).is_file(), word
    assert EXAMPLES.is_dir()
    (tmp_path / "snapml").mkdir()
    assert missing_modules(METHODS["snapml"].packages, tmp_path, tmp_path) == []


def test_the_learning_rate_of_asynchronous_methods() -> None:
    assert "--init_learning_rate=0.08" in METHODS["ps"].program(DIGITS, 4)
    # four times as many updates, each from a quarter of the images
    assert "--init_learning_rate=0.02" in METHODS["ps-async"].program(DIGITS, 4)
    assert "--learning-rate=0.02" in METHODS["parameter-server-strategy"].program(DIGITS, 4)
    # each rank has a network to itself
    sweep = METHODS["sweep"].program(DIGITS, 4)
    assert "--learning-rate=0.08" in sweep and "--trials=4" in sweep


def test_speeds_have_a_baseline_and_the_same_work() -> None:
    methods = [method for method in METHODS.values() if "synthetic" in method.kinds]
    assert len(methods) == 9 and all(method.trains(ALEXNET) for method in methods)
    for method in methods:
        assert METHODS[COUNTERPARTS[method.trainer][0]].independent
        command = method.command(ALEXNET, Place(2), Path("/env"))
        batch = "--batch-size=4" if method.trainer == "pytorch" else "--batch_size=4"
        assert batch in command and "--device=cpu" in command
        assert "--device=gpu" in method.program(replace(ALEXNET, device="gpu"), 2)
        assert ("/env/bin/ddlrun" in command) != method.by_horovodrun
        exchanges = method.trainer == "tensorflow" and not method.independent
        assert ("--exchange_blocks=7" in command) == exchanges
        assert not any("exchange_blocks" in word for word in method.program(replace(ALEXNET, blocks=0), 2))
    assert not METHODS["torch-ddl"].trains(replace(ALEXNET, name="resnet20"))


def row(method: str, *speeds: float, ranks: int = 2, alone: float | None = None) -> Row:
    samples = [Sample(images_per_sec=speed, alone=alone) for speed in speeds]
    return Row("alexnet", method, ranks, METHODS[method].title, 4, samples=samples)


def figures(*rows: Row) -> list[dict[str, Any]]:
    document = Document(Path("none"), HEAD)
    document.rows = list(rows)
    return [figures_of(row, document) for row in rows]


def test_efficiency_is_relative_to_the_fewest_ranks() -> None:
    rows = figures(row("ddl", 100, ranks=2), row("ddl", 150, ranks=4), row("horovod", 100, ranks=4))
    assert [one["efficiency"] for one in rows] == [1, 0.75, None]


def test_figures_of_tensorflow() -> None:
    # 8 images a step: 1 s without communication, 2 s, 1.6 s and 4 s with it
    names = ("parallel_efficiency", "ddl_ahead", "exchange", "overlap")
    rows = figures(row("independent", 8), row("ddl", 4), row("ddl-groups", 5), row("horovod", 2))
    limit, ddl, groups, horovod = ([one[name] for name in names] for one in rows)
    assert limit == [None] * 4
    assert ddl == [0.5, None, 1, None]
    assert groups[2] == pytest.approx(0.6) and groups[3] == pytest.approx(0.4)
    assert (horovod[0], horovod[1], horovod[3]) == (0.25, 2, None)


def test_figures_of_pytorch_have_their_own_baseline() -> None:
    _, _, ddl, gloo = figures(
        row("ddl", 100), row("torch-independent", 8), row("torch-ddl", 4, alone=1.5), row("torch-gloo", 2)
    )
    assert ddl["overlap"] == pytest.approx(0.5) and ddl["parallel_efficiency"] == 0.5
    assert gloo["ddl_ahead"] == 2 and gloo["overlap"] is None


def test_ratios_are_medians_of_rounds_not_of_a_machine_that_drifts() -> None:
    # Half as fast in every round, while the machine becomes slower; one round has not been finished.
    limit, ddl, horovod = figures(row("independent", 8, 4, 2, 1), row("ddl", 4, 2, 1), row("horovod", 2, 1))
    assert [one["images_per_sec"] for one in (limit, ddl, horovod)] == [3, 2, 1.5]
    assert (ddl["parallel_efficiency"], horovod["parallel_efficiency"]) == (0.5, 0.25)
    assert horovod["ddl_ahead"] == 2 and ddl["range"] == "1.00 to 4.00"
    assert ddl["exchange"] == 2 and horovod["exchange"] == pytest.approx((3 + 6) / 2)
    measured = row("ddl", 4, 5, 6)
    for sample, efficiency in zip(measured.samples, (0.9, 0.8, 0.95), strict=True):
        sample.efficiency = efficiency
    assert figures(measured)[0]["communication_efficiency"] == 0.9


def test_a_side_that_was_not_measured_gives_no_ratio() -> None:
    only, absent = figures(row("horovod", 4), row("ddl"))
    for name in ("parallel_efficiency", "ddl_ahead", "exchange", "overlap"):
        assert only[name] is None and absent[name] is None


def test_what_ddl_chose() -> None:
    assert describe_plan({"size": 1}) == "one rank: no communication"
    plan = {
        "size": 2,
        "last": {"algorithm": "ring"},
        "topology": {"hosts": [{"name": "a"}, {"name": "b"}]},
        "transports": ["shared memory", "MPI"],
    }
    assert describe_plan(plan) == "ring; 2 host(s), shared memory and MPI"
    assert figures(row("ddl", 1))[0]["chose"] is None


def test_medians_and_what_was_measured_before(tmp_path: Path) -> None:
    path = tmp_path / "digits.json"
    document = Document(path, HEAD)
    ddl = document.row("digits", "ddl", 4)
    for number, speed in enumerate((100.0, 300.0, 200.0)):
        course, carried = [(1.0 + number, 0.9), (2.0 + number, 0.96)], {"rack0 in": 50 + number}
        ddl.samples.append(Sample(1.0, "now", speed, course, 10, carried))
    document.row("digits", "ps", 4).error = "ended with exit code 1"
    write(document)
    first, second = (own["figures"] for own in json.loads(path.read_text())["rows"])
    assert (first["images_per_sec"], first["seconds_to_accuracy"]) == (200.0, 3.0)
    assert (first["bytes_per_image"], first["best_accuracy"]) == (5.1, 0.96)
    assert second["images_per_sec"] is None and read(path).rows[1].error == "ended with exit code 1"
    assert Document(path, HEAD, fresh=False).row("digits", "ddl", 4).speeds == [100.0, 300.0, 200.0]
    assert Document(path, HEAD, fresh=True).rows == []
    assert Document(path, {**HEAD, "identity": "y"}, fresh=False).rows == []
    # one round did not come so far: there is no time
    ddl.samples.append(Sample(1.0, "now", 100.0, [(1.0, 0.9)], 10))
    assert figures_of(ddl, document)["seconds_to_accuracy"] is None
    cells = cells_of(document.rows, document)
    assert cells.rows[0][cells.headings.index("seconds to 0.95")] == "not reached"
    assert cells.rows[1][1] == "failed" and "overlap" not in cells.headings
    path.write_text(path.read_text()[:-5])
    assert Document(path, HEAD, fresh=False).rows == []
    others = ('{"kind": "trainings", "schema": 1}', '{"kind": "trainings", "schema": 0, "rows": []}')
    for text in ("[]", *others):
        path.write_text(text)
        with pytest.raises(ValueError, match="measure it again"):
            read(path)


def fake_environment(folder: Path, body: str) -> Path:
    """An environment whose ddlrun is a script: for what is passed and what fails, not for results."""
    (folder / "bin").mkdir(parents=True)
    (folder / "conda-meta").mkdir()
    for name in ("pytorch-2.13.0-h1_0", "ddl-pytorch-2.0.0-h2_0", "tf_cnn_benchmarks-1-0", "tensorflow-2-0"):
        (folder / "conda-meta" / f"{name}.json").write_text("{}")
    script = folder / "bin/ddlrun"
    script.write_text(f"#!{sys.executable}\n{body}")
    script.chmod(0o755)
    return folder


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_device_reaches_the_program(tmp_path: Path, device: str) -> None:
    env = fake_environment(tmp_path / "env", "import sys; print(*sys.argv); print('total images/sec: 10.5')")
    output = tmp_path / "scaling.json"
    chosen = [] if device == "cpu" else ["--device", device]
    words = ["resnet20", "--env", str(env), "--method", "ddl", "--ranks", "1", "--rounds", "1"]
    assert cli.main([*words, "--output", str(output), *chosen]) == 0
    (line,) = json.loads(output.read_text())["rows"]
    assert f"--device={device}" in line["command"] and "--data_name=cifar10" in line["command"]
    assert f"--device={device}" in Path(line["log"]).read_text().split()


def test_what_fails_is_named_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = (
        "import sys\nif 'tf1' in sys.argv[-1]: sys.exit('all is lost')\nprint('ranks 2  test accuracy 0.9')"
    )
    env, output = fake_environment(tmp_path / "env", body), tmp_path / "examples.json"
    words = ["examples", "--env", str(env), "--output", str(output), "--method"]
    (env / "conda-meta/ddl-tensorflow-2.0.0-h1_0.json").write_text("{}")
    assert cli.main([*words, "tf1", "--method", "pytorch", "--method", "keras"]) == 1
    printed = capsys.readouterr()
    assert "all is lost" in printed.err and str(tmp_path / "logs/examples-tf1-2-1.log") in printed.err
    assert "gave no result: TensorFlow, TF1 graphs" in printed.err
    assert f"left out: Keras 3: {env} has no keras" in printed.out and "0.900" in printed.out
    failed, trained = read(output).rows
    assert failed.error and not failed.samples and trained.title == "PyTorch (pytorch 2.13.0)"
    # what was measured stays, and what failed is tried again
    assert cli.main([*words, "pytorch"]) == 1 and read(output).rows[1] == trained
    assert ": PyTorch: " not in capsys.readouterr().out
    assert cli.main([*words, "keras", "--fresh"]) == 1
    assert "nothing to train with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rounds", "0"], "--rounds: at least 1"),
        (["--ranks", "2", "0"], "--ranks: at least 1"),
        (["--num-batches", "0"], "--num-batches: at least 1"),
        (["--accuracy", "95"], "such as 0.95"),
        (["--hosts", "2,x"], "--hosts 2,x: write the ranks of each host"),
        (["--hosts", "2,2", "--racks", "3"], "3 racks for 2 host"),
        (["--hosts", "1,1", "--rate", "fast"], "fast"),
        (["--device", "tpu"], "--device: invalid choice"),
        (["--method", "nccl"], "invalid choice"),
        (["--packages", "/nowhere"], "no such folder"),
        (["--env", "/nowhere"], "wmlce env create powerai"),
    ],
)
def test_wrong_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    env = fake_environment(tmp_path / "env", "")
    with pytest.raises(SystemExit) as ended:
        cli.main(["digits", "--env", str(env), "--output", str(tmp_path / "out.json"), *arguments])
    assert ended.value.code == 2 and message in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()
