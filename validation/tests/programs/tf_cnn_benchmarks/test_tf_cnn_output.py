"""The lines that users' scripts parse, the JSON line, the trace, and the formulas of the statistics."""

from __future__ import annotations

import json
import math
import random
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from program_runner import Environment, Result

NUMBER = r"-?\d+\.\d"
SETUP = [
    r"TensorFlow:  \d+\.\d+",
    r"Model:       lenet",
    r"Dataset:     cifar10 \(synthetic\)",
    r"Mode:        training",
    r"SingleSess:  False",
    r"Batch size:  8 global",
    r"             4 per device",
    r"             3 batches per prepocessing group",
    r"Num batches: 25",
    r"Num epochs:  0\.00",
    r"Devices:     \['/cpu:0', '/cpu:1'\]",
    r"NUMA bind:   False",
    r"Data format: NHWC",
    r"RewriterConfig: remapping: ON",
    r"Optimizer:   momentum",
    r"Variables:   replicated",
    r"AllReduce:   xring",
    r"==========",
    r"Generating training model",
    r"Initializing graph",
    r"Round up warm up steps to 3 to match batch_group_size",
    r"Running warm up",
    r"Dumping trace to .*/new/trace.json",
    r"Done warm up",
    r"Step\tImg/sec\ttotal_loss\ttop_1_accuracy\ttop_5_accuracy",
]
STEP = (
    rf"(\d+)\timages/sec: ({NUMBER}) \+/- ({NUMBER}) \(jitter = ({NUMBER})\)\t(\d+\.\d{{3}})"
    r"\t([01]\.\d{3})\t([01]\.\d{3})"
)
RULE = "-" * 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("output")


@pytest.fixture(scope="module")
def run(tf_env: Environment, folder: Path) -> Result:
    return tf_env.benchmark(
        "--model=lenet", "--data_name=cifar10", "--batch_size=4", "--num_gpus=2", "--num_batches=25",
        "--device=cpu", "--data_format=NCHW", "--allow_growth", "--num_warmup_batches=2",
        "--variable_update=replicated", "--all_reduce_spec=xring", "--optimizer=momentum",
        "--print_training_accuracy", "--num_intra_threads=1", f"--result_json={folder / 'result.json'}",
        f"--trace_file={folder / 'new' / 'trace.json'}", "--batch_group_size=3",
        "--rewriter_config=remapping: ON",
    ).ok()  # fmt: skip


def test_lines(run: Result) -> None:
    lines = run.out.splitlines()
    for line, pattern in zip(lines, SETUP, strict=False):
        assert re.fullmatch(pattern, line), (line, pattern)
    steps, end = lines[len(SETUP) : -3], lines[-3:]
    assert [int(re.fullmatch(STEP, line)[1]) for line in steps] == [1, 10, 20]  # type: ignore[index]
    assert re.fullmatch(STEP, steps[0])[3] == "0.0"  # type: ignore[index]
    assert end[0] == end[2] == RULE
    assert re.fullmatch(r"total images/sec: \d+\.\d\d", end[1])


def test_step_lines_and_total_agree_with_the_json(run: Result, folder: Path) -> None:
    (line,) = (folder / "result.json").read_text().splitlines()
    result = json.loads(line)
    times = result["step_seconds"]
    assert len(times) == result["steps"] == 25
    for shown in re.finditer(STEP, run.out):
        n = int(shown[1])
        speeds = [8 / t for t in times[:n]]
        middle = statistics.median(speeds)
        assert float(shown[2]) == pytest.approx(8 * n / sum(times[:n]), abs=0.06)
        assert float(shown[3]) == pytest.approx(statistics.pstdev(speeds) / math.sqrt(n), abs=0.06)
        jitter = 1.4826 * statistics.median(abs(s - middle) for s in speeds)
        assert float(shown[4]) == pytest.approx(jitter, abs=0.06)
    total = float(re.search(r"total images/sec: (\S+)", run.out)[1])  # type: ignore[index]
    assert total == pytest.approx(25 * 8 / result["elapsed_seconds"], abs=0.006)
    assert result["elapsed_seconds"] >= sum(times)
    assert result["ranks"] == 1 and result["batch_global"] == 8 and result["intra_threads"] == 1
    assert result["global_step"] == 28


def test_what_has_no_effect_is_said(run: Result) -> None:
    notes = [line for line in run.err.splitlines() if line.startswith("tf_cnn_benchmarks: ")]
    assert len(notes) == 3
    assert "NHWC" in notes[0] and "batch_group_size" in notes[1] and "allow_growth" in notes[2]


def test_trace_is_a_chrome_trace(run: Result, folder: Path) -> None:
    trace = json.loads((folder / "new" / "trace.json").read_text())
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert any(event["ph"] == "C" for event in trace["traceEvents"]), "how much memory is in use"
    operators = {event["name"] for event in complete}
    assert any("Conv2D" in name for name in operators), operators
    assert all(event["dur"] >= 0 and "ts" in event for event in complete)


def test_statistics_against_their_definition(tf_env: Environment) -> None:
    random.seed(4)
    cases: list[Any] = [[[random.uniform(0.01, 2) for _ in range(n)], n + 3] for n in (1, 2, 7, 100)]
    code = """
import json, sys
from tf_cnn_benchmarks.statistics import speed, total_speed
cases = json.loads(sys.argv[1])
averages = [speed(*case, 0.3).mean for case in cases]
print(json.dumps([[vars(speed(*case)) for case in cases], total_speed(4, 50, 8, 3.2), averages,
                  speed([3.0, 4.0], 8, 1.0).mean]))
"""
    found, total, averages, newest = tf_env.evaluate(code, json.dumps(cases))
    assert total == pytest.approx(4 * 50 * 8 / 3.2)
    for (times, batch), got in zip(cases, found, strict=True):
        speeds = [batch / t for t in times]
        middle = statistics.median(speeds)
        assert got["mean"] == pytest.approx(batch / statistics.fmean(times))
        assert got["uncertainty"] == pytest.approx(statistics.pstdev(speeds) / math.sqrt(len(times)))
        assert got["jitter"] == pytest.approx(1.4826 * statistics.median(abs(s - middle) for s in speeds))
    # --display_perf_ewma: each step moves the average by its share of what is left, normalised.
    for (times, batch), got in zip(cases, averages, strict=True):
        mean = weight = 0.0
        for seconds in times:
            mean, weight = 0.7 * mean + 0.3 * seconds, 0.7 * weight + 0.3
        assert got == pytest.approx(batch * weight / mean)
    assert newest == 8 / 4.0


@pytest.mark.long
def test_forward_only_and_xla_compile(tf_env: Environment, tmp_path: Path) -> None:
    """XLA computes the same losses as TensorFlow's own kernels; test_tf_cnn_graph.py shows that it ran."""
    code = """
import json, sys
from tf_cnn_benchmarks.cli import main
for flags in ([], ["--xla_compile"], ["--forward_only"], ["--forward_only", "--xla_compile"]):
    assert main(["x", "--data_name=digits", "--model=lenet", "--num_batches=3", "--num_warmup_batches=1",
                 "--result_json=" + sys.argv[1], *flags]) == 0
print(json.dumps([json.loads(line) for line in open(sys.argv[1])]))
"""
    plain, compiled, forward, forward_compiled = tf_env.evaluate(code, tmp_path / "r.json", timeout=200)
    assert plain["total_loss"] == pytest.approx(compiled["total_loss"], rel=1e-4)
    assert forward["base_loss"] == pytest.approx(forward_compiled["base_loss"], rel=1e-4)
    assert forward["base_loss"] != pytest.approx(plain["total_loss"])


def test_the_lines_of_a_forward_pass(tf_env: Environment) -> None:
    """No loss and both accuracies. The header names the model as its authors do."""
    flags = ["--model=lenet", "--forward_only", "--num_batches=1", "--num_warmup_batches=0"]
    (run,) = tf_env.benchmarks([*flags, "--variable_update=replicated", "--use_fp16"])
    lines = run.ok().out.splitlines()
    assert lines[1] == "Model:       lenet5" and lines[3] == "Mode:        forward only"
    assert {"AllReduce:   None", "Generating training model"} <= set(lines)
    assert "Step\tImg/sec\ttotal_loss\ttop_1_accuracy\ttop_5_accuracy" in lines
    assert re.fullmatch(STEP, lines[-4])[5] == "0.000"  # type: ignore[index]
    assert "--use_fp16" in run.err and "no fast float16 kernels" in run.err


def test_an_unwritable_result_is_said(tf_env: Environment, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    flags = ["--data_name=digits", "--num_batches=1"]
    json_run, trace_run, no_warmup = tf_env.benchmarks(
        [*flags, "--num_warmup_batches=1", f"--result_json={tmp_path}/file/r.json"],
        [*flags, "--num_warmup_batches=1", f"--trace_file={tmp_path}/file/t.json"],
        [*flags, "--num_warmup_batches=0", f"--trace_file={tmp_path}/t.json"],
    )
    assert "--result_json" in json_run.error()
    assert "--trace_file" in trace_run.error()
    assert "warm-up" in no_warmup.error()


FILES = """
import glob, json, sys
from google.protobuf import text_format
import tensorflow as tf
from tensorflow.core.profiler.tfprof_log_pb2 import ProfileProto
from tf_cnn_benchmarks.cli import main
v1 = tf.compat.v1
folder = sys.argv[1]
common = ["x", "--data_name=digits", "--model=lenet", "--batch_size=8", "--num_batches=6",
          "--weight_decay=0.5", "--num_warmup_batches=2"]
assert main([*common, f"--train_dir={folder}/run", "--save_summaries_steps=4", "--summary_verbosity=3",
    f"--trace_file={folder}/trace", "--nouse_chrome_trace_format", f"--tfprof_file={folder}/profile",
    f"--graph_file={folder}/graph.txt", "--loss_type_to_report=base_loss", "--display_perf_ewma=1",
    f"--benchmark_log_dir={folder}/log", "--benchmark_test_id=mine", f"--result_json={folder}/r.json",
    "--init_learning_rate=0.125", "--display_every=2", "--print_training_accuracy"]) == 0
assert main([*common, f"--result_json={folder}/r.json"]) == 0
trace = text_format.Parse(open(folder + "/trace").read(), tf.compat.v1.RunMetadata().step_stats)
profile = ProfileProto()
profile.ParseFromString(open(folder + "/profile", "rb").read())
graph = v1.GraphDef()
text_format.Parse(open(folder + "/graph.txt").read(), graph)
(events,) = glob.glob(folder + "/run/events*")
summaries = [[e.step, v.tag, v.simple_value if v.HasField("simple_value") else v.histo.num]
             for e in v1.train.summary_iterator(events) for v in e.summary.value]
print(json.dumps({
    "traced": sorted({node.node_name.partition(":")[0] for d in trace.dev_stats for node in d.node_stats}),
    "profiled": [node.name for node in profile.nodes.values() if node.execs],
    "built": [node.op for node in graph.node],
    "summaries": summaries,
    "results": [json.loads(line) for line in open(folder + "/r.json")],
}))
"""


@pytest.fixture(scope="module")
def files(tf_env: Environment, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("files")
    return folder, tf_env.evaluate(FILES, folder)


def test_records_of_a_step(files: tuple[Path, Any]) -> None:
    """The StepStats, the profile and the graph hold the model's convolutions."""
    _, found = files
    for kind in ("traced", "profiled"):
        assert sum("Conv2D" in name for name in found[kind]) >= 8, found[kind]
    assert found["built"].count("Conv2D") == 3 and found["built"].count("Conv2DBackpropFilter") == 3


def test_summaries(files: tuple[Path, Any]) -> None:
    """At steps 2 and 6, which are 0 and 4 after the warm-up: the loss, the rate, and histograms over all
    elements of gradients and variables."""
    _, found = files
    assert {step for step, _, _ in found["summaries"]} == {2, 6}
    first = {tag: value for step, tag, value in found["summaries"] if step == 2}
    assert first["learning_rate"] == 0.125 and 1 < first["base_loss"] < 3
    sizes = {"conv0/conv2d/kernel": 150, "affine0/weights": 120 * 84, "affine1/biases": 10}
    for name, size in sizes.items():
        assert first[f"v/cg/{name}"] == first[f"v/cg/{name}/gradients"] == size
    assert len(first) == 2 + 2 * 10


def test_loss_type_to_report(files: tuple[Path, Any]) -> None:
    """Weight decay of 0.5 is much of the total loss and no part of the base loss, which is about log(10)."""
    _, found = files
    base, total = found["results"]
    assert "total_loss" not in base and base["base_loss"] == pytest.approx(math.log(10), abs=0.4)
    assert total["total_loss"] > base["base_loss"] + 10


def test_benchmark_log(files: tuple[Path, Any]) -> None:
    folder, found = files
    run = json.loads((folder / "log" / "benchmark_run.log").read_text())
    assert run["model_name"] == "lenet" and run["dataset"] == {"name": "digits"} and run["test_id"] == "mine"
    parameters = {p.pop("name"): next(iter(p.items())) for p in run["run_parameters"]}
    assert parameters["batch_size"] == ("long_value", 8) and parameters["use_fp16"] == ("bool_value", False)
    assert parameters["init_learning_rate"] == ("float_value", 0.125)
    metrics = [json.loads(line) for line in (folder / "log" / "metric.log").read_text().splitlines()]
    assert [(m["name"], m["global_step"]) for m in metrics] == [
        *((name, step) for step in (1, 2, 4, 6)
          for name in ("current_examples_per_sec", "top_1_accuracy", "top_5_accuracy")),
        ("average_examples_per_sec", 6),
    ]  # fmt: skip
    result = found["results"][0]
    assert metrics[-1]["value"] == result["images_per_sec"]
    assert metrics[-4]["value"] == pytest.approx(8 / result["step_seconds"][-1])
    assert [m["value"] for m in metrics[-3:-1]] == [result[f"top_{k}_accuracy"] for k in (1, 5)]
    # --display_perf_ewma=1: the newest step alone.
    assert result["rank_images_per_sec"] == pytest.approx(8 / result["step_seconds"][-1])
    assert result["test_id"] == "mine"
