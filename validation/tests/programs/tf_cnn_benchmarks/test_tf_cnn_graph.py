"""Flags that change the graph or how TensorFlow runs it, proved by the operators that are in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from program_runner import Environment

RAN = """
import collections, glob, json, sys
from tf_cnn_benchmarks.cli import main
folder, runs = sys.argv[1], json.loads(sys.argv[2])
for i, flags in enumerate(runs):
    assert main(["x", "--num_batches=2", "--num_warmup_batches=2", "--batch_size=4", "--device=cpu",
                 f"--partitioned_graph_file_prefix={folder}/{i}-", f"--graph_file={folder}/{i}.pb",
                 f"--result_json={folder}/{i}.json", *flags]) == 0
# Only now: the program sets what TensorFlow reads when it is imported.
import tensorflow as tf
found = []
for i in range(len(runs)):
    counts = collections.Counter()
    for path in glob.glob(f"{folder}/{i}-_job_localhost_replica_0_task_0_device_*_0"):
        graph = tf.compat.v1.GraphDef.FromString(open(path, "rb").read())
        counts.update(node.op for node in graph.node)
    built = tf.compat.v1.GraphDef.FromString(open(f"{folder}/{i}.pb", "rb").read())
    found.append([counts, collections.Counter(node.op for node in built.node),
                  next(value for name, value in json.loads(open(f"{folder}/{i}.json").read()).items()
                       if name in ("base_loss", "total_loss"))])
print(json.dumps(found))
"""
DIGITS = ["--data_name=digits", "--model=lenet"]
FORWARD = [*DIGITS, "--forward_only"]
SYNTHETIC = ["--data_name=cifar10", "--model=resnet20", "--forward_only"]
RUNS = {
    "plain": [*DIGITS, "--weight_decay=0.1"],
    "one l2 loss": [*DIGITS, "--weight_decay=0.1", "--single_l2_loss_op"],
    "xla_compile": [*DIGITS, "--weight_decay=0.1", "--xla_compile"],
    "forward": FORWARD,
    "unoptimised": [*FORWARD, "--noenable_optimizations"],
    "remapping off": [*FORWARD, "--rewriter_config=remapping: OFF"],
    "frozen": [*FORWARD, "--freeze_when_forward_only"],
    "synthetic": SYNTHETIC,
    "synthetic frozen": [*SYNTHETIC, "--freeze_when_forward_only"],
}

Ran = dict[str, tuple[dict[str, int], dict[str, int], float]]
"""By run: how often the graph that ran, and the one that was built, hold each operator; the loss."""


def run(env: Environment, folder: Path, runs: dict[str, list[str]]) -> Ran:
    found = env.evaluate(RAN, folder, json.dumps(list(runs.values())), timeout=240)
    return dict(zip(runs, found, strict=True))


@pytest.fixture(scope="module")
def ran(tf_env: Environment, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(tf_env, tmp_path_factory.mktemp("graphs"), RUNS)


def named(counts: dict[str, int], part: str) -> int:
    return sum(number for name, number in counts.items() if part in name)


def test_xla_compile_makes_one_cluster_of_the_model(ran: Ran) -> None:
    """The convolutions are inside what XLA compiled, not operators of the graph that ran."""
    plain, compiled = ran["plain"], ran["xla_compile"]
    assert named(plain[0], "Conv2D") >= 8 and named(plain[0], "Xla") == 0
    assert named(compiled[0], "Conv2D") == 0
    assert named(compiled[0], "XlaLaunch") + named(compiled[0], "XlaRun") == 1
    assert compiled[2] == pytest.approx(plain[2], rel=1e-3)


def test_xla_makes_clusters_of_parts(env: Environment, tf_env: Environment, tmp_path: Path) -> None:
    """In a process of its own, for TensorFlow reads that setting once."""
    clustered = run(env, tmp_path, {"xla": [*DIGITS, "--xla"]})["xla"]
    assert named(clustered[0], "XlaRun") + named(clustered[0], "XlaLaunch") >= 1
    assert named(clustered[0], "Conv2D") < named(clustered[1], "Conv2D")


def test_enable_optimizations_and_rewriter_config(ran: Ran) -> None:
    """Constants are folded and operators fused, unless that is switched off; the results are the same."""
    optimised, as_built, no_fusing = ran["forward"], ran["unoptimised"], ran["remapping off"]
    assert named(optimised[0], "Fused") > 0
    assert named(as_built[0], "Fused") == 0 and sum(as_built[0].values()) > sum(optimised[0].values())
    assert named(no_fusing[0], "Fused") == 0
    assert [one[2] for one in (as_built, no_fusing)] == pytest.approx([optimised[2]] * 2, rel=1e-4)


def test_a_wrong_rewriter_config_is_said(tf_env: Environment) -> None:
    (wrong,) = tf_env.benchmarks([*DIGITS, "--num_batches=1", "--rewriter_config=remapping: MAYBE"])
    assert "--rewriter_config" in wrong.error() and "constant_folding: OFF" in wrong.error()


@pytest.mark.parametrize(("data", "inputs"), [("forward", 0), ("synthetic", 2)])
def test_freeze_when_forward_only(ran: Ran, data: str, inputs: int) -> None:
    """The model's variables are no longer read; what the model computes is the same and still computed.
    Synthetic images and labels are variables, and stay so."""
    plain, frozen = ran[data], ran["frozen" if data == "forward" else "synthetic frozen"]
    assert named(plain[0], "ReadVariableOp") > 8
    assert named(frozen[0], "ReadVariableOp") == inputs
    assert named(frozen[0], "Conv2D") == named(plain[0], "Conv2D") > 2
    assert frozen[2] == pytest.approx(plain[2], rel=1e-4)


def test_single_l2_loss_op(ran: Ran) -> None:
    one, many = ran["one l2 loss"], ran["plain"]
    assert one[1]["L2Loss"] == 1 and many[1]["L2Loss"] == 10
    assert one[2] == pytest.approx(many[2], rel=1e-5)


BUILT = """
import json, sys
import tensorflow as tf
from tf_cnn_benchmarks import benchmark
from tf_cnn_benchmarks.params import parse
from tf_cnn_benchmarks.session import Machine
from tf_cnn_benchmarks.workers import OneProcess
found = {}
for layout, flags in json.loads(sys.argv[1]).items():
    benchmark.find_machine = lambda params, workers: Machine(["/gpu:0"], "/gpu:0", layout, 1, 1, [])
    with tf.Graph().as_default() as graph:
        benchmark.Benchmark(parse(["x", "--model=resnet50", "--batch_size=2", *flags]), OneProcess())._build()
        found[layout] = [[op.name, op.type, op.device, op.get_attr("data_format").decode()
                          if "data_format" in op.node_def.attr else None] for op in graph.get_operations()]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def built(tf_env: Environment) -> dict[str, Any]:
    """By layout: [name, type, device, layout] of each operator of a training graph for a GPU, which need not
    exist: the graph does not run."""
    flags = {"NCHW": ["--compute_lr_on_cpu"], "NHWC": ["--nocompute_lr_on_cpu"]}
    return dict(tf_env.evaluate(BUILT, json.dumps(flags)))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_layout_on_gpus(built: dict[str, Any], layout: str) -> None:
    """Every operator of the model that has a layout has this one, forward and backward."""
    layouts: dict[str, set[str]] = {}
    for _, kind, _, found in built[layout]:
        if found:
            layouts.setdefault(kind, set()).add(found)
    for kind in ("Conv2D", "Conv2DBackpropFilter", "FusedBatchNormV3", "FusedBatchNormGradV3", "MaxPool"):
        assert layouts.pop(kind) == {layout}, kind
    # The classifier's bias is added to vectors, which have no layout.
    assert layouts.pop("BiasAdd") == layouts.pop("BiasAddGrad") == {"NHWC"}
    assert all(found == {layout} for found in layouts.values()), layouts
    convolutions = [device for _, kind, device, _ in built[layout] if kind == "Conv2D"]
    assert len(convolutions) == 53 and all("gpu:0" in device.lower() for device in convolutions)


def test_compute_lr_on_cpu(built: dict[str, Any]) -> None:
    """The schedule's own operators are on the CPU, and only with the flag."""
    rates = {
        layout: {
            device
            for name, kind, device, _ in operators
            if kind in ("GreaterEqual", "GatherV2") and not name.startswith("tower_")
        }
        for layout, operators in built.items()
    }
    assert rates == {"NCHW": {"/device:CPU:0"}, "NHWC": {""}}


def test_nchw_on_cpus_is_accepted_and_said(tf_env: Environment) -> None:
    flags = ["--device=cpu", "--num_batches=1", "--num_warmup_batches=0", "--data_format=NCHW"]
    (done,) = tf_env.benchmarks([*DIGITS, *flags])
    assert "Data format: NHWC\n" in done.ok().out
    (note,) = done.err.splitlines()
    assert "NCHW" in note and "NHWC" in note


def test_gpu_indices(tf_env: Environment, tmp_path: Path) -> None:
    flags = ["--num_gpus=2", "--gpu_indices=2,0", "--variable_update=replicated", "--device=cpu"]
    (done,) = tf_env.benchmarks([*DIGITS, *flags, "--num_batches=2", f"--trace_file={tmp_path}/t.json"])
    assert "Devices:     ['/cpu:2', '/cpu:0']\n" in done.ok().out
    trace = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in trace if event["name"] == "process_name"}
    assert any("CPU:2" in name for name in names) and not any("CPU:1" in name for name in names)


SETTINGS = """
import json, os, sys
from tf_cnn_benchmarks.environment import prepare_environment
from tf_cnn_benchmarks.params import parse
params = parse(["x", *json.loads(sys.argv[1])])
prepare_environment(params)
from tf_cnn_benchmarks.session import Machine, session_config
from tf_cnn_benchmarks.workers import OneProcess
def settings(params):
    config = session_config(params, Machine(["/gpu:0"], "/gpu:0", "NCHW", 1, 1, []), OneProcess())
    more = config.gpu_options.experimental
    return [config.gpu_options.per_process_gpu_memory_fraction, config.gpu_options.allow_growth,
            config.gpu_options.force_gpu_compatible, more.use_unified_memory, more.timestamped_allocator,
            more.kernel_tracker_max_interval, more.kernel_tracker_max_bytes, more.kernel_tracker_max_pending,
            config.experimental.use_numa_affinity]
print(json.dumps([settings(params), settings(parse(["x"]))]))
"""
GPU_FLAGS = [
    *("--gpu_memory_frac_for_testing=0.25", "--allow_growth", "--force_gpu_compatible"),
    *("--use_unified_memory", "--timestamped_allocator", "--gpu_kt_max_interval=2", "--gpu_kt_max_bytes=3"),
    *("--gpu_kt_max_pending=4", "--use_numa_affinity"),
]


def test_settings_of_gpus_reach_tensorflow(tf_env: Environment) -> None:
    """As the session's configuration has them."""
    given, default = tf_env.evaluate(SETTINGS, json.dumps(GPU_FLAGS))
    assert given == [0.25, True, True, True, True, 2, 3, 4, True]
    assert default == [0.0, False, False, False, False, 0, 0, 0, False]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {"MODE": "gpu_private", "COUNT": "2", "SYNC": "0"}),
        (
            ["--gpu_thread_mode=gpu_shared", "--per_gpu_thread_count=5", "--sync_on_finish"],
            {"MODE": "gpu_shared", "COUNT": "5", "SYNC": "1"},
        ),
        (["--gpu_thread_mode=global"], {"MODE": "global", "COUNT": None, "SYNC": "0"}),
    ],
)
def test_settings_of_the_environment(env: Environment, flags: list[str], expected: dict[str, Any]) -> None:
    """Which TensorFlow reads when it starts; the user's own stay."""
    code = """
import json, os, sys
from tf_cnn_benchmarks.environment import prepare_environment
from tf_cnn_benchmarks.params import parse
names = {"MODE": "TF_GPU_THREAD_MODE", "COUNT": "TF_GPU_THREAD_COUNT", "SYNC": "TF_SYNC_ON_FINISH"}
prepare_environment(parse(["x", *sys.argv[1:]]))
first = {short: os.environ.get(name) for short, name in names.items()}
os.environ["TF_SYNC_ON_FINISH"] = "mine"
prepare_environment(parse(["x", *sys.argv[1:]]))
print(json.dumps([first, os.environ["TF_SYNC_ON_FINISH"]]))
"""
    assert env.evaluate(code, *flags) == [expected, "mine"]
