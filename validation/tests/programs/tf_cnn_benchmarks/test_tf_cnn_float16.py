"""--use_fp16: the types that operators ran in, the factor of the loss, and how it adapts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from program_runner import Environment

RAN = """
import json, re, sys
from google.protobuf import text_format
import tensorflow as tf
from tf_cnn_benchmarks.cli import main
folder = sys.argv[1]
HALF, SINGLE = tf.float16.as_datatype_enum, tf.float32.as_datatype_enum
found = {}
for name, flags in json.loads(sys.argv[2]).items():
    assert main(["x", "--data_name=cifar10", "--model=resnet20", "--batch_size=2", "--num_batches=1",
                 "--num_warmup_batches=1", f"--partitioned_graph_file_prefix={folder}/{name}.txt",
                 f"--train_dir={folder}/{name}", *flags]) == 0
    graph = tf.compat.v1.GraphDef()
    text_format.Parse(open(f"{folder}/{name}_job_localhost_replica_0_task_0_device_CPU_0.txt").read(), graph)
    types = {}
    for node in graph.node:
        # Rewriting puts oneDNN's kernels, and ones that are fused with what follows, in the place of others.
        kind = re.sub("^_(MklNative|Mkl)?(Fused)?", "", node.op)
        if kind.startswith(("Conv2D", "ResourceApply")) and "T" in node.attr:
            types.setdefault(kind, []).append(node.attr["T"].type)
    read = tf.train.load_checkpoint(f"{folder}/{name}")
    stored = {k: v.name for k, v in read.get_variable_to_dtype_map().items()}
    found[name] = [{k: sorted({"half" if t == HALF else "single" if t == SINGLE else t for t in v}) + [len(v)]
                    for k, v in types.items()}, stored]
print(json.dumps(found))
"""
RUNS = {"single": [], "half": ["--use_fp16"], "stored": ["--use_fp16", "--fp16_vars"]}


@pytest.fixture(scope="module")
def ran(tf_env: Environment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return dict(tf_env.evaluate(RAN, tmp_path_factory.mktemp("half"), json.dumps(RUNS), timeout=240))


CONVOLUTIONS = {"Conv2D": 19, "Conv2DBackpropFilter": 19, "Conv2DBackpropInput": 18}
"""Of resnet20; the images have no gradient."""


@pytest.mark.parametrize(("run", "kind"), [("single", "single"), ("half", "half"), ("stored", "half")])
def test_the_types_that_convolutions_ran_in(ran: dict[str, Any], run: str, kind: str) -> None:
    """In the graph that TensorFlow ran, after its own rewriting."""
    types, _ = ran[run]
    for operator, number in CONVOLUTIONS.items():
        assert types[operator] == [kind, number], types


def test_what_is_stored_in_float16(ran: dict[str, Any]) -> None:
    """Variables and their updates: float32, unless --fp16_vars asks for float16; batch normalisation's
    always."""
    for run in ("single", "half"):
        types, stored = ran[run]
        assert set(stored.values()) == {"float32", "int64"}
        assert types["ResourceApplyGradientDescent"][0] == "single"
    types, stored = ran["stored"]
    assert types["ResourceApplyGradientDescent"][:2] == ["half", "single"]
    for name, kind in stored.items():
        if name.startswith("v/cg/"):
            assert kind == ("float32" if "/batchnorm" in name else "float16"), name


SCALE = """
import json, sys
import numpy as np
import tensorflow as tf
from tf_cnn_benchmarks.models import find_model
from tf_cnn_benchmarks.params import parse
from tf_cnn_benchmarks.towers import build_tower
v1 = tf.compat.v1
rng = np.random.default_rng(3)
images = rng.normal(size=(4, 32, 32, 3)).astype(np.float32)
labels = np.array([1, 2, 3, 4], np.int32)
def gradients(scale, *flags):
    with tf.Graph().as_default() as graph, v1.Session() as session:
        # A seed with which float16 moves no maximum to another pixel, as it does with every second one.
        params = parse(["x", "--data_name=cifar10", "--model=lenet", "--weight_decay=0", "--tf_random_seed=2",
                        *flags])
        with v1.variable_scope("v"):
            tower = build_tower(params, find_model("lenet", "cifar10"), tf.constant(images),
            tf.constant(labels),
                                classes=10, data_format="NHWC", training=True, scale=scale)
        session.run(v1.global_variables_initializer())
        backward = [op for op in graph.get_operations() if op.type == "Conv2DBackpropFilter"]
        inner, outer, loss = session.run([[op.outputs[0] for op in backward], [g for g, _ in tower.gradients],
                                          tower.loss])
        kinds = {str(x.dtype) for x in outer}
        return [np.concatenate([np.abs(x).astype(np.float64).ravel() for x in part]) for part in (inner,
        outer)], \\
               float(loss), sorted(kinds), sorted({str(x.dtype) for x in inner})
exact, loss, _, _ = gradients(1.0)
plain, plain_loss, kinds, inner_kinds = gradients(1.0, "--use_fp16")
scaled, scaled_loss, _, _ = gradients(256.0, "--use_fp16")
def relative(a, b): return float(np.abs(a - b).sum() / np.abs(b).sum())
print(json.dumps({
    "losses": [loss, plain_loss, scaled_loss],
    "inner ratio": float(scaled[0].sum() / plain[0].sum()),
    "outer ratio": float(scaled[1].sum() / plain[1].sum()),
    "scaled error": relative(scaled[1], exact[1]),
    "kinds": kinds, "inner kinds": inner_kinds,
}))
"""


def test_the_loss_is_scaled_and_the_gradients_are_not(tf_env: Environment) -> None:
    """Inside, gradients are those of the loss times the factor; the update gets them without it, in
    float32."""
    found = tf_env.evaluate(SCALE)
    assert found["inner kinds"] == ["float16"] and found["kinds"] == ["float32"]
    assert found["losses"][1:] == pytest.approx([found["losses"][0]] * 2, rel=2e-3)
    assert found["inner ratio"] == pytest.approx(256, rel=0.02)
    assert found["outer ratio"] == pytest.approx(1, rel=0.02)
    assert found["scaled error"] < 0.02


ADAPTS = """
import json, sys
import numpy as np
import tensorflow as tf
from tf_cnn_benchmarks import training_loop
from tf_cnn_benchmarks.cli import main
folder, flags = sys.argv[1], sys.argv[2:]
assert main(["x", "--data_name=digits", "--model=lenet", "--batch_size=16", "--num_warmup_batches=0",
             "--num_batches=10", "--optimizer=momentum", "--use_fp16", "--fp16_enable_auto_loss_scale",
             "--init_learning_rate=0.01", "--save_model_steps=1", "--max_ckpts_to_keep=20",
             f"--train_dir={folder}", f"--result_json={folder}.json", *flags]) == 0
scales, good, weights = [], [], []
for step in range(1, 11):
    read = tf.train.load_checkpoint(f"{folder}/model.ckpt-{step}")
    scales.append(float(read.get_tensor("loss_scale")))
    good.append(int(read.get_tensor("loss_scale_normal_steps")))
    weights.append(read.get_tensor("v/cg/conv0/conv2d/kernel"))
moved = [bool((a != b).any()) for a, b in zip(weights, weights[1:])]
print(json.dumps([scales, good, moved, bool(np.isfinite(weights).all()),
                  json.loads(open(folder + ".json").read())["loss_scale"]]))
"""


@pytest.mark.parametrize(
    "sharing",
    [[], ["--num_gpus=2", "--variable_update=replicated", "--device=cpu"]],
    ids=["alone", "replicated"],
)
def test_the_factor_doubles_after_good_steps(tf_env: Environment, tmp_path: Path, sharing: list[str]) -> None:
    flags = ["--fp16_loss_scale=8", "--fp16_inc_loss_scale_every_n=4", *sharing]
    scales, good, moved, finite, last = tf_env.evaluate(ADAPTS, tmp_path / "run", *flags)
    assert scales == [8, 8, 8, 16, 16, 16, 16, 32, 32, 32] and last == 32
    assert good == [1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    assert all(moved) and finite


def test_the_factor_is_halved_when_gradients_overflow(tf_env: Environment, tmp_path: Path) -> None:
    """A step that overflows changes neither weights nor slots; the first one that does not trains."""
    flags = ["--fp16_loss_scale=4194304", "--fp16_inc_loss_scale_every_n=100"]
    scales, good, moved, finite, _ = tf_env.evaluate(ADAPTS, tmp_path / "run", *flags)
    assert good[:2] == [0, 0] and good[-1] > 0, "the factor is too large at first and fits in the end"
    before = [4194304.0, *scales]
    assert scales == [scale / (1 if fits else 2) for scale, fits in zip(before, good, strict=False)]
    assert moved == [fits > 0 for fits in good[1:]]
    assert finite


def test_float16_weights_learn(tf_env: Environment, tmp_path: Path) -> None:
    result = tmp_path / "r.json"
    flags = ["--data_name=digits", "--model=lenet", "--num_batches=120", "--use_fp16", "--fp16_vars"]
    (run,) = tf_env.benchmarks([*flags, "--print_training_accuracy", f"--result_json={result}"])
    run.ok()
    assert json.loads(result.read_text())["top_1_accuracy"] > 0.8
