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
from google.protobuf import text_format
import tensorflow as tf
found = {}
for i, flags in enumerate(runs):
    counts = collections.Counter()
    for path in glob.glob(f"{folder}/{i}-*.txt"):
        graph = tf.compat.v1.GraphDef()
        text_format.Parse(open(path).read(), graph)
        counts.update(node.op for node in graph.node)
    built = tf.compat.v1.GraphDef.FromString(open(f"{folder}/{i}.pb", "rb").read())
    found[" ".join(flags)] = [counts, collections.Counter(node.op for node in built.node),
                              json.loads(open(f"{folder}/{i}.json").read())["total_loss"]]
print(json.dumps(found))
"""
DIGITS = ["--data_name=digits", "--model=lenet"]


def ran(
    env: Environment, folder: Path, *runs: list[str]
) -> list[tuple[dict[str, int], dict[str, int], float]]:
    """Of each run: how often the graph that ran, and the one that was built, hold each operator; the loss."""
    found = env.evaluate(RAN, folder, json.dumps(runs), timeout=240)
    return [found[" ".join(flags)] for flags in runs]


def named(counts: dict[str, int], part: str) -> int:
    return sum(number for name, number in counts.items() if part in name)


def test_xla_compile_makes_one_cluster_of_the_model(tf_env: Environment, tmp_path: Path) -> None:
    """The convolutions are inside what XLA compiled, not operators of the graph that ran."""
    plain, compiled = ran(tf_env, tmp_path, [*DIGITS], [*DIGITS, "--xla_compile"])
    assert named(plain[0], "Conv2D") >= 8 and named(plain[0], "Xla") == 0
    assert named(compiled[0], "Conv2D") == 0
    assert named(compiled[0], "XlaLaunch") + named(compiled[0], "XlaRun") == 1
    assert compiled[2] == pytest.approx(plain[2], rel=1e-3)


def test_xla_makes_clusters_of_parts(tf_env: Environment, tmp_path: Path) -> None:
    """In a process of its own, for TensorFlow reads that setting once."""
    (clustered,) = ran(tf_env, tmp_path, [*DIGITS, "--xla"])
    assert named(clustered[0], "XlaRun") + named(clustered[0], "XlaLaunch") >= 1
    assert named(clustered[0], "Conv2D") < named(clustered[1], "Conv2D")


def test_enable_optimizations_and_rewriter_config(tf_env: Environment, tmp_path: Path) -> None:
    """Constants are folded and operators fused, unless that is switched off; the results are the same."""
    optimised, as_built, no_fusing = ran(
        tf_env,
        tmp_path,
        [*DIGITS, "--forward_only"],
        [*DIGITS, "--forward_only", "--noenable_optimizations"],
        [*DIGITS, "--forward_only", "--rewriter_config=remapping: OFF"],
    )
    assert named(optimised[0], "Fused") > 0
    assert named(as_built[0], "Fused") == 0 and sum(as_built[0].values()) > sum(optimised[0].values())
    assert named(no_fusing[0], "Fused") == 0
    assert [run[2] for run in (as_built, no_fusing)] == pytest.approx([optimised[2]] * 2, rel=1e-4)


def test_a_wrong_rewriter_config_is_said(tf_env: Environment) -> None:
    (run,) = tf_env.benchmarks([*DIGITS, "--num_batches=1", "--rewriter_config=remapping: MAYBE"])
    assert "--rewriter_config" in run.error() and "constant_folding: OFF" in run.error()


@pytest.mark.parametrize(
    "data", [DIGITS, ["--data_name=cifar10", "--model=resnet20"]], ids=["real", "synthetic"]
)
def test_freeze_when_forward_only(tf_env: Environment, tmp_path: Path, data: list[str]) -> None:
    """The model's variables are no longer read; what the model computes is the same and still computed."""
    plain, frozen = ran(
        tf_env, tmp_path, [*data, "--forward_only"], [*data, "--forward_only", "--freeze_when_forward_only"]
    )
    reads = named(plain[0], "ReadVariableOp")
    inputs = 0 if data is DIGITS else 2
    assert reads > 8
    assert named(frozen[0], "ReadVariableOp") == inputs
    assert named(frozen[0], "Conv2D") == named(plain[0], "Conv2D") > 2
    assert frozen[2] == pytest.approx(plain[2], rel=1e-4)


def test_single_l2_loss_op(tf_env: Environment, tmp_path: Path) -> None:
    one, many, base = ran(
        tf_env,
        tmp_path,
        [*DIGITS, "--weight_decay=0.1", "--single_l2_loss_op"],
        [*DIGITS, "--weight_decay=0.1"],
        [*DIGITS, "--weight_decay=0.1", "--sync_on_finish"],
    )
    assert one[1]["L2Loss"] == 1 and many[1]["L2Loss"] == 10
    assert one[2] == pytest.approx(many[2], rel=1e-5)
    assert base[2] == many[2]


BUILT = """
import json, sys
import tensorflow as tf
from tf_cnn_benchmarks import benchmark
from tf_cnn_benchmarks.params import parse
from tf_cnn_benchmarks.session import Machine
from tf_cnn_benchmarks.workers import OneProcess
devices, layout, flags = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3:]
benchmark.find_machine = lambda params, workers: Machine(devices, devices[0], layout, 1, 1, [])
params = parse(["x", f"--num_gpus={len(devices)}", *flags])
with tf.Graph().as_default() as graph:
    benchmark.Benchmark(params, OneProcess())._build()
    print(json.dumps([[op.name, op.type, op.device, op.get_attr("data_format").decode()
                       if "data_format" in op.node_def.attr else None] for op in graph.get_operations()]))
"""


def built(env: Environment, devices: list[str], layout: str, *flags: str) -> list[Any]:
    """[name, type, device, layout] of each operator of a training graph for those devices, which need not
    exist."""
    return list(env.evaluate(BUILT, json.dumps(devices), layout, *flags))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_layout_on_gpus(tf_env: Environment, layout: str) -> None:
    """Every operator of the model that has a layout has this one, forward and backward."""
    operators = built(tf_env, ["/gpu:0"], layout, "--model=resnet50", "--batch_size=2")
    layouts: dict[str, set[str]] = {kind: set() for _, kind, _, found in operators if found}
    for _, kind, _, found in operators:
        if found:
            layouts[kind].add(found)
    for kind in ("Conv2D", "Conv2DBackpropFilter", "FusedBatchNormV3", "FusedBatchNormGradV3", "MaxPool"):
        assert layouts.pop(kind) == {layout}, kind
    # The classifier's bias is added to vectors, which have no layout.
    assert layouts.pop("BiasAdd") == layouts.pop("BiasAddGrad") == {"NHWC"}
    assert all(found == {layout} for found in layouts.values()), layouts
    convolutions = [device for _, kind, device, _ in operators if kind == "Conv2D"]
    assert len(convolutions) == 53 and all("gpu:0" in d.lower() for d in convolutions)


def test_nchw_on_cpus_is_accepted_and_said(tf_env: Environment) -> None:
    flags = ["--device=cpu", "--num_batches=1", "--num_warmup_batches=0", "--data_format=NCHW"]
    (run,) = tf_env.benchmarks([*DIGITS, *flags])
    assert "Data format: NHWC\n" in run.ok().out
    (note,) = run.err.splitlines()
    assert "NCHW" in note and "NHWC" in note


def test_compute_lr_on_cpu(tf_env: Environment) -> None:
    """The schedule's own operators are on the CPU, and only with the flag."""
    rates = {}
    for flag in ("--compute_lr_on_cpu", "--nocompute_lr_on_cpu"):
        flags = ["--data_name=cifar10", "--model=resnet20", flag]
        operators = built(tf_env, ["/gpu:0"], "NCHW", *flags)
        rates[flag] = {
            device
            for name, kind, device, _ in operators
            if kind in ("GreaterEqual", "GatherV2") and not name.startswith("tower_")
        }
    assert rates == {"--compute_lr_on_cpu": {"/device:CPU:0"}, "--nocompute_lr_on_cpu": {""}}


def test_gpu_indices(tf_env: Environment, tmp_path: Path) -> None:
    flags = ["--num_gpus=2", "--gpu_indices=2,0", "--variable_update=replicated", "--device=cpu"]
    (run,) = tf_env.benchmarks([*DIGITS, *flags, "--num_batches=2", f"--trace_file={tmp_path}/t.json"])
    assert "Devices:     ['/cpu:2', '/cpu:0']\n" in run.ok().out
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
config = session_config(params, Machine([sys.argv[2]], sys.argv[2], "NCHW", 1, 1, []), OneProcess())
more = config.gpu_options.experimental
print(json.dumps({
    "memory": config.gpu_options.per_process_gpu_memory_fraction, "growth": config.gpu_options.allow_growth,
    "compatible": config.gpu_options.force_gpu_compatible, "unified": more.use_unified_memory,
    "timestamped": more.timestamped_allocator, "interval": more.kernel_tracker_max_interval,
    "bytes": more.kernel_tracker_max_bytes, "pending": more.kernel_tracker_max_pending,
    "numa": config.experimental.use_numa_affinity,
    **{name: os.environ.get(name) for name in ("TF_GPU_THREAD_MODE", "TF_GPU_THREAD_COUNT",
    "TF_SYNC_ON_FINISH")},
}))
"""


def test_settings_of_gpus_reach_tensorflow(tf_env: Environment) -> None:
    """As the session's configuration and the environment that TensorFlow reads have them."""
    flags = [
        *(
            "--gpu_memory_frac_for_testing=0.25",
            "--allow_growth",
            "--force_gpu_compatible",
            "--use_unified_memory",
        ),
        *(
            "--timestamped_allocator",
            "--gpu_kt_max_interval=2",
            "--gpu_kt_max_bytes=3",
            "--gpu_kt_max_pending=4",
        ),
        *(
            "--use_numa_affinity",
            "--gpu_thread_mode=gpu_shared",
            "--per_gpu_thread_count=5",
            "--sync_on_finish",
        ),
    ]
    assert tf_env.evaluate(SETTINGS, json.dumps(flags), "/gpu:0") == {
        **{"memory": 0.25, "growth": True, "compatible": True, "unified": True, "timestamped": True},
        **{"interval": 2, "bytes": 3, "pending": 4, "numa": True},
        **{"TF_GPU_THREAD_MODE": "gpu_shared", "TF_GPU_THREAD_COUNT": "5", "TF_SYNC_ON_FINISH": "1"},
    }
    untouched = tf_env.evaluate(SETTINGS, json.dumps([]), "/gpu:0")
    assert untouched == {
        **{"memory": 0.0, "growth": False, "compatible": False, "unified": False, "timestamped": False},
        **{"interval": 0, "bytes": 0, "pending": 0, "numa": False},
        **{"TF_GPU_THREAD_MODE": "gpu_private", "TF_GPU_THREAD_COUNT": "2", "TF_SYNC_ON_FINISH": "0"},
    }
