"""The models of tf_cnn_benchmarks against the figures of their papers, and the layers against numpy."""

from __future__ import annotations

from typing import Any

import pytest
from program_runner import Environment


def conv(kernel: int, before: int, after: int) -> int:
    return kernel * kernel * before * after + after


def dense(before: int, after: int) -> int:
    return before * after + after


ALEXNET = (
    conv(11, 3, 64) + conv(5, 64, 192) + conv(3, 192, 384) + conv(3, 384, 384) + conv(3, 384, 256)
    + dense(6 * 6 * 256, 4096) + dense(4096, 4096) + dense(4096, 1000)
)  # fmt: skip
LENET = 156 + 2416 + 48120 + 10164 + 850  # LeCun et al. 1998, with all maps of C3 connected
PARAMETERS = [
    # data set, model, classes, trainable parameters as published (torchvision 0.15, Keras 3 for Inception
    # plus its 17216 scales, He et al. 2015 option A for CIFAR-10) or derived above
    ("imagenet", "trivial", 1000, dense(224 * 224 * 3, 1) + dense(1, 4096) + dense(4096, 1000)),
    ("imagenet", "lenet", 1000, LENET + 2 * 25 * 6 + dense(84, 1000) - 850),
    ("imagenet", "alexnet", 1000, ALEXNET),
    ("imagenet", "vgg11", 1000, 132_863_336),
    ("imagenet", "vgg16", 1000, 138_357_544),
    ("imagenet", "vgg19", 1000, 143_667_240),
    ("imagenet", "resnet50", 1000, 25_557_032),
    ("imagenet", "resnet50_v1.5", 1000, 25_557_032),
    ("imagenet", "resnet101", 1000, 44_549_160),
    ("imagenet", "resnet152", 1000, 60_192_808),
    ("imagenet", "inception3", 1000, 23_817_352 + 17_216),
    ("cifar10", "trivial", 10, dense(3072, 10)),
    ("cifar10", "lenet", 10, LENET + 2 * 25 * 6),
    ("cifar10", "alexnet", 10, conv(5, 3, 64) + conv(5, 64, 64) + dense(4096, 384) + dense(384, 192) + 1930),
    ("cifar10", "resnet20", 10, 269_722),
    ("cifar10", "resnet32", 10, 464_154),
    ("cifar10", "resnet44", 10, 658_586),
    ("cifar10", "resnet56", 10, 853_018),
    ("cifar10", "resnet110", 10, 1_727_962),
    ("digits", "trivial", 10, dense(64, 10)),
    ("digits", "lenet", 10, LENET),
    ("digits", "resnet20", 10, 269_722 - 2 * 9 * 16),
]

BUILD = """
import json, sys
import tensorflow as tf
from tf_cnn_benchmarks.layers import Layers
from tf_cnn_benchmarks.models import MODELS
v1 = tf.compat.v1
channels = {"imagenet": 3, "cifar10": 3, "digits": 1}
found = {}
for layout in ("NHWC", "NCHW"):
    for data, models in MODELS.items():
        for name, model in models.items():
            if layout == "NCHW" and name not in ("lenet", "alexnet", "resnet50", "inception3", "resnet20"):
                continue
            with tf.Graph().as_default():
                net = Layers(training=True, data_format=layout, dtype=tf.float32, seed=1)
                shape = [2, model.image_size, model.image_size, channels[data]]
                if layout == "NCHW":
                    shape = [shape[0], shape[3], shape[1], shape[2]]
                images = v1.placeholder(tf.float32, shape)
                with v1.variable_scope("model"):
                    logits = net.classifier(model.build(net, images), 1000 if data == "imagenet" else 10)
                count = sum(v.shape.num_elements() for v in v1.trainable_variables())
                assert net.trainable == v1.trainable_variables()
                convolutions = [op for op in logits.graph.get_operations() if op.type == "Conv2D"]
                strides = [list(op.get_attr("strides")) for op in convolutions]
                found[f"{layout} {data} {name}"] = [count, logits.shape.as_list(), strides]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def built(tf_env: Environment) -> dict[str, Any]:
    return dict(tf_env.evaluate(BUILD, timeout=240))


def test_every_model_is_in_the_table(built: dict[str, Any]) -> None:
    assert {key.split(" ", 1)[1] for key in built} == {f"{data} {name}" for data, name, _, _ in PARAMETERS}


@pytest.mark.parametrize(("data", "name", "classes", "parameters"), PARAMETERS)
def test_parameters(built: dict[str, Any], data: str, name: str, classes: int, parameters: int) -> None:
    in_both_layouts = [built[key] for key in built if key.split(" ", 1)[1] == f"{data} {name}"]
    assert in_both_layouts
    for count, shape, _ in in_both_layouts:
        assert count == parameters
        assert shape == [2, classes]


def test_where_resnet50_halves_the_image(built: dict[str, Any]) -> None:
    """Convolutions of the first block of the second group: shortcut, 1 x 1, 3 x 3, 1 x 1."""
    first = 1 + 4 + 3 + 3
    v1 = built["NHWC imagenet resnet50"][2][first : first + 4]
    v15 = built["NHWC imagenet resnet50_v1.5"][2][first : first + 4]
    assert [s[1] for s in v1] == [2, 2, 1, 1]
    assert [s[1] for s in v15] == [2, 1, 2, 1]
    assert len(built["NHWC imagenet resnet50"][2]) == 53


LAYERS = """
import json
import numpy as np
import tensorflow as tf
from tf_cnn_benchmarks.layers import Layers
v1 = tf.compat.v1
rng = np.random.default_rng(5)
images = rng.normal(size=(4, 6, 6, 3)).astype(np.float32) * 2 + 1
worst = {}
with tf.Graph().as_default(), v1.Session() as session:
    net = Layers(training=True, data_format="NHWC", dtype=tf.float32, seed=3)
    with v1.variable_scope("model"):
        y = net.conv(tf.constant(images), 5, 3, stride=2, padding="VALID", batch_norm=True)
    variables = {v.op.name: v for v in v1.global_variables()}
    session.run(v1.global_variables_initializer())
    weights = session.run(variables["model/conv0/weights"]).astype(np.float64)
    got, _ = session.run([y, net.update_ops])
    mean, variance = session.run([variables["model/conv0/mean"], variables["model/conv0/variance"]])
x = images.astype(np.float64)
raw = np.zeros((4, 2, 2, 5))
for i in range(2):
    for j in range(2):
        raw[:, i, j] = np.einsum("nhwc,hwcf->nf", x[:, 2*i:2*i+3, 2*j:2*j+3], weights)
m, s2 = raw.mean((0, 1, 2)), raw.var((0, 1, 2))
want = np.maximum((raw - m) / np.sqrt(s2 + 1e-5), 0)
n = raw[..., 0].size
worst["output"] = np.abs(got - want).max()
worst["mean"] = np.abs(mean - 0.1 * m).max()
worst["variance"] = np.abs(variance - (0.9 + 0.1 * s2 * n / (n - 1))).max()
print(json.dumps({k: float(v) for k, v in worst.items()}))
"""


def test_convolution_and_batch_normalisation_against_numpy(tf_env: Environment) -> None:
    for what, error in tf_env.evaluate(LAYERS).items():
        assert error < 2e-5, what


RUN_BIG = """
import json, sys
from tf_cnn_benchmarks.cli import main
common = ["x", "--num_warmup_batches=1", "--num_batches=1", "--batch_size=1", "--init_learning_rate=0",
          "--result_json=" + sys.argv[1]]
for flags in (
    ["--model=trivial"], ["--model=lenet"], ["--model=alexnet"],
    ["--model=resnet50"], ["--model=inception3", "--forward_only"],
    ["--model=vgg11", "--forward_only"],
    ["--model=alexnet", "--data_name=cifar10"], ["--model=resnet32", "--data_name=cifar10"],
    ["--model=lenet", "--data_name=cifar10"], ["--model=trivial", "--data_name=cifar10"],
):
    if main(common + flags):
        sys.exit(f"failed: {flags}")
print(json.dumps([json.loads(line) for line in open(sys.argv[1])]))
"""


@pytest.mark.long
def test_models_run(tf_env: Environment, tmp_path: Any) -> None:
    """A training or forward step of a model of each family gives a finite loss near that of guessing."""
    for run in tf_env.evaluate(RUN_BIG, tmp_path / "results.json", timeout=280):
        guessing = 6.9 if run["dataset"].startswith("imagenet") else 2.3
        # Without training, the running averages of batch normalisation fit nothing.
        most = guessing + 8 if run["mode"] == "training" else 1e4
        assert guessing - 1 < run["total_loss"] < most, (run["model"], run["total_loss"])
        assert run["images_per_sec"] > 0
