"""--variable_update inside one process, and the all-reduce between its devices."""

from __future__ import annotations

import json
from typing import Any

import pytest
from program_runner import Environment

MODES = {
    "one device": ["--batch_size=48"],
    "parameter_server": ["--num_gpus=3"],
    "replicated": ["--num_gpus=3", "--variable_update=replicated"],
    "xring": ["--num_gpus=3", "--variable_update=replicated", "--all_reduce_spec=xring"],
    "pscpu#2:1k:xring#3": [
        "--num_gpus=3", "--variable_update=replicated", "--all_reduce_spec=pscpu#2:1k:xring#3",
    ],
    "psgpu#2": ["--num_gpus=3", "--variable_update=replicated", "--all_reduce_spec=psgpu#2"],
    "gradient_repacking": ["--num_gpus=3", "--variable_update=replicated", "--gradient_repacking=4"],
    "agg_small_grads": [
        "--num_gpus=3", "--variable_update=replicated", "--agg_small_grads_max_bytes=2000",
        "--agg_small_grads_max_group=3",
    ],
    "nccl": ["--num_gpus=3", "--variable_update=replicated", "--all_reduce_spec=nccl"],
    "independent": ["--num_gpus=3", "--variable_update=independent"],
    "independent, equal data": ["--num_gpus=1", "--variable_update=independent", "--batch_size=48"],
}  # fmt: skip
RUN = """
import json, sys
import numpy as np
import tensorflow as tf
from tf_cnn_benchmarks.cli import main
folder, modes = sys.argv[1], json.loads(sys.argv[2])
weights, losses = {}, {}
for i, (name, flags) in enumerate(modes.items()):
    result = f"{folder}/{i}.json"
    assert main(["x", "--data_name=digits", "--model=lenet", "--batch_size=16", "--num_batches=8",
        "--num_warmup_batches=1", "--optimizer=momentum", "--init_learning_rate=0.05", "--device=cpu",
        f"--train_dir={folder}/{i}", f"--result_json={result}", *flags]) == 0
    read = tf.train.load_checkpoint(f"{folder}/{i}")
    weights[name] = {k: read.get_tensor(k).astype(float) for k in sorted(read.get_variable_to_shape_map())}
    losses[name] = json.loads(open(result).read())["total_loss"]
base = weights["one device"]
def worst(w): return max(float(np.abs(w[k] - base[k]).max()) for k in base)
print(json.dumps({name: [sorted(w) == sorted(base), worst(w), losses[name]] for name, w in weights.items()}))
"""


@pytest.fixture(scope="module")
def compared(tf_env: Environment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("modes")
    return dict(tf_env.evaluate(RUN, folder, json.dumps(MODES), timeout=240))


@pytest.mark.parametrize("mode", [name for name in MODES if name != "independent"])
def test_sharing_modes_equal_one_device_with_the_whole_batch(compared: dict[str, Any], mode: str) -> None:
    """Nine steps with momentum on three devices: variables, slots, step count and loss, under equal names."""
    same_names, difference, loss = compared[mode]
    assert same_names
    assert difference < 1e-4
    assert loss == pytest.approx(compared["one device"][2], rel=1e-4)


def test_independent_devices_share_nothing(compared: dict[str, Any]) -> None:
    same_names, difference, _ = compared["independent"]
    assert same_names
    assert difference > 1e-3


ALL_REDUCE = """
import json
import numpy as np
import tensorflow as tf
from tf_cnn_benchmarks.all_reduce_spec import parse_spec
from tf_cnn_benchmarks.local_all_reduce import all_reduce_mean
v1 = tf.compat.v1
rng = np.random.default_rng(2)
shapes = [(1,), (7, 13), (101,), (3, 3, 2, 5), (2,), (997,), ()]
worst = 0.0
for devices in (1, 2, 3, 5):
    for spec in ("pscpu", "xring", "psgpu#2", "xring#4", "pscpu:4:xring:400:psgpu#3", "xring:1k:pscpu#7"):
        data = [[rng.normal(size=s).astype(np.float32) for s in shapes] for _ in range(devices)]
        with tf.Graph().as_default():
            places = ["/cpu:%d" % d for d in range(devices)]
            means = all_reduce_mean([[tf.constant(x) for x in t] for t in data], places, parse_spec(spec))
            config = v1.ConfigProto(device_count={"CPU": devices})
            with v1.Session(config=config) as session:
                got = session.run(means)
        want = [np.mean([np.float64(t[i]) for t in data], 0) for i in range(len(shapes))]
        for tower in got:
            for g, w, s in zip(tower, want, shapes):
                assert g.shape == s
                worst = max(worst, float(np.abs(g - w).max()))
print(json.dumps(worst))
"""


def test_all_reduce_against_numpy(tf_env: Environment) -> None:
    assert tf_env.evaluate(ALL_REDUCE) < 1e-6


PACKED = """
import json
import numpy as np
import tensorflow as tf
from tf_cnn_benchmarks.all_reduce_spec import parse_spec
from tf_cnn_benchmarks.local_all_reduce import Packing, all_reduce_mean
v1 = tf.compat.v1
rng = np.random.default_rng(9)
shapes = [(3,), (50, 4), (5,), (7,), (1000,), (2, 2), (1,)]
data = [[rng.normal(size=s).astype(np.float32) * 1e-6 for s in shapes] for _ in range(3)]
want = [np.mean([np.float64(t[i]) for t in data], 0) for i in range(len(shapes))]
found = {}
for name, packing in {
    "one pack": Packing(), "parts": Packing(parts=5), "small": Packing(small=100, group=2),
    "small in parts": Packing(parts=2, small=100, group=9), "half": Packing(scale=65536.0),
    "half without scale": Packing(scale=1.0),
}.items():
    with tf.Graph().as_default() as graph:
        places = ["/cpu:%d" % d for d in range(3)]
        gradients = [[tf.constant(x) for x in t] for t in data]
        means = all_reduce_mean(gradients, places, parse_spec("pscpu"), packing)
        sums = [op for op in graph.get_operations() if op.type == "AddN"]
        with v1.Session(config=v1.ConfigProto(device_count={"CPU": 3})) as session:
            got = session.run(means)
    worst = max(float(np.abs(g - w).max() / np.abs(w).max()) for t in got for g, w in zip(t, want))
    found[name] = [worst, sorted(int(op.outputs[0].shape[0]) for op in sums), sums[0].outputs[0].dtype.name]
print(json.dumps(found))
"""


def test_how_gradients_are_packed(tf_env: Environment) -> None:
    """The vectors that are added up (lengths and type), and what comes out, against numpy."""
    found = tf_env.evaluate(PACKED)
    lengths = {name: sums for name, (_, sums, _) in found.items()}
    total = 3 + 200 + 5 + 7 + 1000 + 4 + 1
    assert lengths["one pack"] == lengths["half"] == [total]
    assert lengths["parts"] == [total // 5] * 5
    # 3 + 5, 7 + 4 and the last single one together; large ones by themselves.
    assert lengths["small"] == sorted([3 + 5, 7 + 4, 1, 200, 1000])
    assert lengths["small in parts"] == sorted([10, 10, 100, 100, 500, 500])
    for name, (error, _, kind) in found.items():
        assert kind == ("float16" if name.startswith("half") else "float32")
        if name == "half without scale":
            assert error > 0.01, "numbers of 1e-6 have few bits in float16"
        else:
            assert error < (2e-3 if kind == "float16" else 1e-6), name


COMPACT = """
import json, sys
import tensorflow as tf
from tf_cnn_benchmarks import benchmark
from tf_cnn_benchmarks.params import parse
from tf_cnn_benchmarks.workers import OneProcess
found = []
for flags in ([], ["--nocompact_gradient_transfer"]):
    params = parse(["x", "--data_name=digits", "--model=lenet", "--variable_update=replicated",
                    "--device=cpu", "--num_gpus=2", "--use_fp16", "--all_reduce_spec=psgpu", *flags])
    with tf.Graph().as_default() as graph:
        benchmark.Benchmark(params, OneProcess())._build()
        # The gradients of all 61706 weights.
        found.append([op.outputs[0].dtype.name for op in graph.get_operations()
                      if op.type == "AddN" and op.outputs[0].shape.as_list() == [61706]])
print(json.dumps(found))
"""


def test_compact_gradient_transfer(tf_env: Environment) -> None:
    assert tf_env.evaluate(COMPACT) == [["float16"], ["float32"]]
