"""The models of tf_cnn_benchmarks against the figures of their papers and of Keras, a training step of each,
and the layers against numpy."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from program_runner import Environment

# How many trainable parameters a network has, worked out from its paper's tables.


def conv(kernel: int, before: int, after: int) -> int:
    return kernel * kernel * before * after + after


def bare(kernel: int, before: int, after: int) -> int:
    return kernel * kernel * before * after


def dense(before: int, after: int) -> int:
    return before * after + after


def official_resnet(blocks: tuple[int, ...], *, bottleneck: bool, v2: bool) -> int:
    """From table 1 of arXiv:1512.03385 with a projection in each group. A normalised channel has two
    parameters; v1 normalises what leaves a convolution, v2 what enters one and the last sum."""
    total, width = bare(7, 3, 64), 64
    normalised = 0 if v2 else 64
    for group, repetitions in enumerate(blocks):
        inner = 64 * 2**group
        outer = 4 * inner if bottleneck else inner
        for repetition in range(repetitions):
            if bottleneck:
                total += bare(1, width, inner) + bare(3, inner, inner) + bare(1, inner, outer)
                normalised += 2 * inner + (width if v2 else outer)
            else:
                total += bare(3, width, inner) + bare(3, inner, inner)
                normalised += inner + (width if v2 else outer)
            if repetition == 0:
                total += bare(1, width, outer)
                normalised += 0 if v2 else outer
            width = outer
    return total + 2 * (normalised + (width if v2 else 0)) + dense(width, 1000)


def densenet(depth: int, growth: int) -> int:
    """Section 3 and table 2 of arXiv:1608.06993, without bottlenecks and compression."""
    total, channels = bare(3, 3, 16), 16
    for block in range(3):
        if block:
            total += 2 * channels + bare(1, channels, channels)
        for _ in range((depth - 4) // 3):
            total += 2 * channels + bare(3, channels, growth)
            channels += growth
    return total + 2 * channels + dense(channels, 10)


ALEXNET = (
    conv(11, 3, 64) + conv(5, 64, 192) + conv(3, 192, 384) + conv(3, 384, 384) + conv(3, 384, 256)
    + dense(6 * 6 * 256, 4096) + dense(4096, 4096) + dense(4096, 1000)
)  # fmt: skip
LENET = 156 + 2416 + 48120 + 10164 + 850  # LeCun et al. 1998, with all maps of C3 connected
OVERFEAT = (
    conv(11, 3, 96) + conv(5, 96, 256) + conv(3, 256, 512) + conv(3, 512, 1024) + conv(3, 1024, 1024)
    + dense(6 * 6 * 1024, 3072) + dense(3072, 4096) + dense(4096, 1000)
)  # fmt: skip
# Table 1 of arXiv:1409.4842: channels in, then the columns #1x1 to pool proj.
GOOGLENET_MODULES = [
    (192, 64, 96, 128, 16, 32, 32),
    (256, 128, 128, 192, 32, 96, 64),
    (480, 192, 96, 208, 16, 48, 64),
    (512, 160, 112, 224, 24, 64, 64),
    (512, 128, 128, 256, 24, 64, 64),
    (512, 112, 144, 288, 32, 64, 64),
    (528, 256, 160, 320, 32, 128, 128),
    (832, 256, 160, 320, 32, 128, 128),
    (832, 384, 192, 384, 48, 128, 128),
]


def googlenet_module(before: int, *filters: int) -> int:
    ones, reduce_3, threes, reduce_5, fives, pooled = filters
    return (
        conv(1, before, ones) + conv(1, before, reduce_3) + conv(3, reduce_3, threes)
        + conv(1, before, reduce_5) + conv(5, reduce_5, fives) + conv(1, before, pooled)
    )  # fmt: skip


GOOGLENET = (
    conv(7, 3, 64) + conv(1, 64, 64) + conv(3, 64, 192) + dense(1024, 1000)
    + sum(googlenet_module(*row) for row in GOOGLENET_MODULES)
)  # fmt: skip
BASIC = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
BOTTLENECK = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}
OFFICIAL = [
    (
        "imagenet",
        f"official_resnet{depth}{'_v2' * v2}",
        2048 if bottleneck else 512,
        official_resnet(blocks, bottleneck=bottleneck, v2=v2),
    )
    for table, bottleneck in ((BASIC, False), (BOTTLENECK, True))
    for depth, blocks in table.items()
    for v2 in (False, True)
]
# He et al. 2015 with option A, whose shortcuts have no parameters: so it makes no difference to the sum
# whether what enters a convolution is normalised (v2) or what leaves it.
CIFAR10_RESNET = {20: 269_722, 32: 464_154, 44: 658_586, 56: 853_018, 110: 1_727_962}
TABLE = [
    # data set, model, features, trainable parameters as published (torchvision 0.15 for v1 and MobileNet;
    # Keras 3 for Inception v3, plus its 17216 scales, and for v2, less its superfluous biases; timm for
    # Inception v4) or derived above
    ("imagenet", "trivial", 4096, dense(227 * 227 * 3, 1) + dense(1, 4096) + dense(4096, 1000)),
    ("imagenet", "lenet", 512, conv(5, 3, 32) + conv(5, 32, 64) + dense(7 * 7 * 64, 512) + dense(512, 1000)),
    ("imagenet", "alexnet", 4096, ALEXNET),
    ("imagenet", "overfeat", 4096, OVERFEAT),
    ("imagenet", "vgg11", 4096, 132_863_336),
    ("imagenet", "vgg16", 4096, 138_357_544),
    ("imagenet", "vgg19", 4096, 143_667_240),
    ("imagenet", "googlenet", 1024, GOOGLENET),
    ("imagenet", "mobilenet", 1280, 3_504_872),
    ("imagenet", "resnet50", 2048, 25_557_032),
    ("imagenet", "resnet50_v1.5", 2048, 25_557_032),
    ("imagenet", "resnet101", 2048, 44_549_160),
    ("imagenet", "resnet152", 2048, 60_192_808),
    ("imagenet", "resnet50_v2", 2048, 25_549_352),
    ("imagenet", "resnet101_v2", 2048, 44_541_480),
    ("imagenet", "resnet152_v2", 2048, 60_185_128),
    *OFFICIAL,
    ("imagenet", "inception3", 2048, 23_817_352 + 17_216),
    ("imagenet", "inception4", 1536, 42_679_816),
    ("cifar10", "trivial", 4096, dense(3072, 1) + dense(1, 4096) + dense(4096, 10)),
    ("cifar10", "lenet", 84, LENET + 2 * 25 * 6),
    ("cifar10", "alexnet", 192, conv(5, 3, 64) + conv(5, 64, 64) + dense(4096, 384) + dense(384, 192) + 1930),
    *(
        ("cifar10", f"resnet{depth}{version}", 64, parameters)
        for version in ("", "_v2")
        for depth, parameters in CIFAR10_RESNET.items()
    ),
    ("cifar10", "densenet40_k12", 16 + 36 * 12, densenet(40, 12)),
    ("cifar10", "densenet100_k12", 16 + 96 * 12, densenet(100, 12)),
    ("cifar10", "densenet100_k24", 16 + 96 * 24, densenet(100, 24)),
    ("digits", "trivial", 64, dense(64, 10)),
    ("digits", "lenet", 84, LENET),
    ("digits", "resnet20", 64, 269_722 - 2 * 9 * 16),
]
DEPTHS_OF_LONG = ("34", "44", "56", "100", "101", "110", "152", "200")
"""Networks whose graphs take seconds to build: only the long run builds them."""
IN_BOTH_LAYOUTS = (
    "lenet",
    "alexnet",
    "mobilenet",
    "googlenet",
    "resnet50",
    "inception3",
    "resnet20",
    "densenet40_k12",
)
IN_BOTH_LAYOUTS += ("official_resnet18_v2",)


def marks(name: str) -> list[pytest.MarkDecorator]:
    digits = name.removeprefix("official_").lstrip("abcdefghijklmnopqrstuvwxyz").split("_")[0]
    return [pytest.mark.long] if digits in DEPTHS_OF_LONG else []


def test_counts_agree_with_published_ones() -> None:
    assert GOOGLENET == 6_998_552  # Caffe's, without the auxiliary classifiers
    assert OVERFEAT // 10**6 == 145  # table 4 of arXiv:1312.6229
    # Table 2 of arXiv:1608.06993, in millions.
    assert [round(densenet(*net) / 1e6, 1) for net in ((40, 12), (100, 12), (100, 24))] == [1.0, 7.0, 27.2]
    counts = {name: parameters for _, name, _, parameters in TABLE}
    for depth in (50, 101, 152):
        assert counts[f"official_resnet{depth}"] == counts[f"resnet{depth}"]
        assert counts[f"official_resnet{depth}_v2"] == counts[f"resnet{depth}_v2"]
    for depth, published in ((18, 11_689_512), (34, 21_797_672)):
        # torchvision's, and the projection that the official model has in its first group too
        assert counts[f"official_resnet{depth}"] == published + bare(1, 64, 64) + 2 * 64


REGISTRY = """
import json
from tf_cnn_benchmarks.models import MODELS
found = {data: {name: [m.image_size, m.batch_size, m.title] for name, m in models.items()}
         for data, models in MODELS.items()}
print(json.dumps(found))
"""
# Pixels of a side and default batch, as users of the benchmark know them.
SIZES = {
    ("imagenet", "trivial"): (227, 32),
    ("imagenet", "lenet"): (28, 32),
    ("imagenet", "alexnet"): (227, 512),
    ("imagenet", "overfeat"): (231, 32),
    ("imagenet", "googlenet"): (224, 32),
    ("imagenet", "mobilenet"): (224, 32),
    ("imagenet", "inception3"): (299, 32),
    ("imagenet", "inception4"): (299, 32),
    **{("imagenet", f"vgg{depth}"): (224, 64) for depth in (11, 16, 19)},
    **{("imagenet", f"resnet50{version}"): (224, 64) for version in ("", "_v1.5", "_v2")},
    **{("imagenet", f"resnet{n}{version}"): (224, 32) for n in (101, 152) for version in ("", "_v2")},
    **{
        ("imagenet", f"official_resnet{depth}{version}"): (224, 128 if depth == 50 else 32)
        for depth in (*BASIC, *BOTTLENECK)
        for version in ("", "_v2")
    },
    ("cifar10", "alexnet"): (32, 128),
    **{
        ("cifar10", f"resnet{depth}{version}"): (32, 128)
        for depth in CIFAR10_RESNET
        for version in ("", "_v2")
    },
    **{("cifar10", f"densenet{net}"): (32, 64) for net in ("40_k12", "100_k12", "100_k24")},
}


def test_names_and_sizes(env: Environment) -> None:
    found = env.evaluate(REGISTRY)
    assert {(data, name) for data, models in found.items() for name in models} == {
        (data, name) for data, name, _, _ in TABLE
    }
    for (data, name), sizes in SIZES.items():
        assert tuple(found[data][name][:2]) == sizes, (data, name)
    shown = {name: title for models in found.values() for name, (_, _, title) in models.items()}
    assert shown["resnet50_v1.5"] == "resnet50_v1.5"
    assert shown["official_resnet50"] == "official_resnet_50_v1"
    assert shown["official_resnet18_v2"] == "official_resnet_18_v2"


NOT_PROVIDED = {
    "ncf": ("users and items", "--model=trivial"),
    "deepspeech2": ("speech", "docs/train/nmt.md"),
    "ssd300": ("detects objects", "--model=vgg16"),
    "nasnet": ("architecture search", "--model=mobilenet"),
    "nasnetlarge": ("architecture search", "--model=inception4"),
}


def test_models_that_are_not_provided_say_why_and_what_to_take(env: Environment) -> None:
    runs = [[f"--model={name}"] for name in NOT_PROVIDED]
    runs += [["--model=ssd300", "--data_name=coco"], ["--model=deepspeech2", "--data_name=librispeech"]]
    for flags, result in zip(runs, env.benchmarks(*runs), strict=True):
        name = flags[0].removeprefix("--model=")
        message = result.error()
        assert message.startswith(f"--model={name} is not provided: "), message
        assert all(part in message for part in NOT_PROVIDED[name]), message
    assert "unknown value of --data_name 'coco'" in env.benchmark("--model=vgg16", "--data_name=coco").error()


BUILD = """
import json, sys
import tensorflow as tf
from tf_cnn_benchmarks.layers import Layers
from tf_cnn_benchmarks.models import find_model
v1 = tf.compat.v1
channels = {"imagenet": 3, "cifar10": 3, "digits": 1}
found = {}
for data, name, layout in json.loads(sys.argv[1]):
    model = find_model(name, data)
    with tf.Graph().as_default() as graph:
        net = Layers(training=True, data_format=layout, dtype=tf.float32, seed=1)
        shape = [2, model.image_size, model.image_size, channels[data]]
        if layout == "NCHW":
            shape = [shape[0], shape[3], shape[1], shape[2]]
        with v1.variable_scope("cg"):
            features = model.build(net, v1.placeholder(tf.float32, shape))
            net.classifier(features, 1000 if data == "imagenet" else 10)
        assert net.trainable == v1.trainable_variables()
        ops = graph.get_operations()
        sums = [op.outputs[0] for op in ops if op.type == "AddV2" and op.outputs[0].shape.rank == 4
                and "Initializer" not in op.name]
        found[f"{layout} {data} {name}"] = {
            "parameters": sum(v.shape.num_elements() for v in net.trainable),
            "features": features.shape.as_list(),
            "convolutions": [[op.get_attr("strides")[1], op.get_attr("padding").decode()]
                             for op in ops if op.type == "Conv2D"],
            "after_sums": sorted({c.type for t in sums for c in t.consumers()}),
        }
print(json.dumps(found))
"""


def build(tf_env: Environment, names: list[tuple[str, str]]) -> dict[str, Any]:
    wanted = [
        (data, name, layout)
        for data, name in names
        for layout in ("NHWC", "NCHW")
        if layout == "NHWC" or name in IN_BOTH_LAYOUTS
    ]
    return dict(tf_env.evaluate(BUILD, json.dumps(wanted), timeout=400))


@pytest.fixture(scope="module")
def built(tf_env: Environment) -> dict[str, Any]:
    return build(tf_env, [(data, name) for data, name, _, _ in TABLE if not marks(name)])


@pytest.fixture(scope="module")
def built_deep(tf_env: Environment) -> dict[str, Any]:
    return build(tf_env, [(data, name) for data, name, _, _ in TABLE if marks(name)])


@pytest.mark.parametrize(
    ("data", "name", "features", "parameters"),
    [pytest.param(*row, marks=marks(row[1]), id=f"{row[0]}-{row[1]}") for row in TABLE],
)
def test_parameters_and_features(
    request: pytest.FixtureRequest, data: str, name: str, features: int, parameters: int
) -> None:
    graphs = request.getfixturevalue("built_deep" if marks(name) else "built")
    in_all_layouts = [graphs[key] for key in graphs if key.split(" ", 1)[1] == f"{data} {name}"]
    assert len(in_all_layouts) == (2 if name in IN_BOTH_LAYOUTS else 1)
    for graph in in_all_layouts:
        assert graph["parameters"] == parameters
        assert graph["features"] == [2, features]


def test_where_resnet50_halves_the_image(built: dict[str, Any]) -> None:
    """Convolutions of the first block of the second group: shortcut, 1 x 1, 3 x 3, 1 x 1."""
    first = 1 + 4 + 3 + 3
    for name, strides in {
        "resnet50": [2, 2, 1, 1],
        "resnet50_v1.5": [2, 1, 2, 1],
        "resnet50_v2": [2, 2, 1, 1],
        "official_resnet50": [2, 1, 2, 1],
        "official_resnet50_v2": [2, 1, 2, 1],
    }.items():
        convolutions = built[f"NHWC imagenet {name}"]["convolutions"]
        assert [stride for stride, _ in convolutions[first : first + 4]] == strides, name
        assert len(convolutions) == 53, name
        # Padding of its own needs none from the operator: the first convolution and a 3 x 3 with a stride.
        padded = [padding for stride, padding in (convolutions[0], convolutions[first + 2]) if stride == 2]
        assert set(padded) == {"VALID"}, name


def test_sums_of_v2_are_not_rectified(built: dict[str, Any]) -> None:
    for name in (
        "imagenet resnet50",
        "imagenet official_resnet18",
        "imagenet official_resnet50",
        "cifar10 resnet20",
    ):
        assert built[f"NHWC {name}"]["after_sums"] == ["Relu"], name
        after = set(built[f"NHWC {name}_v2"]["after_sums"])
        assert after - {"StridedSlice"} == {"AddV2", "FusedBatchNormV3"}, name  # option A slices


KERAS = """
import json, sys
import keras
model = getattr(keras.applications, sys.argv[1])(weights=None)
variables = {id(v): v for layer in model._flatten_layers() for v in layer.trainable_variables}
count = sum(int(v.shape.num_elements()) for v in variables.values())
norms = [l for l in model._flatten_layers() if isinstance(l, keras.layers.BatchNormalization)]
# A bias that a normalisation follows does nothing, and Keras lets some normalisations go without a scale.
if norms:
    count -= sum(l.filters for l in model._flatten_layers() if type(l) is keras.layers.Conv2D and l.use_bias)
    count += sum(int(l.moving_mean.shape[0]) for l in norms if not l.scale)
print(json.dumps(count))
"""


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("ResNet50V2", "resnet50_v2"),
        *(
            pytest.param(theirs, ours, marks=pytest.mark.long)
            for theirs, ours in (
                ("MobileNetV2", "mobilenet"),
                ("ResNet101V2", "resnet101_v2"),
                ("ResNet152V2", "resnet152_v2"),
                ("ResNet50", "resnet50"),
                ("ResNet101", "resnet101"),
                ("ResNet152", "resnet152"),
                ("InceptionV3", "inception3"),
                ("VGG16", "vgg16"),
                ("VGG19", "vgg19"),
            )
        ),
    ],
)
def test_parameters_are_those_of_keras(tf_env: Environment, theirs: str, ours: str) -> None:
    counts = {name: parameters for data, name, _, parameters in TABLE if data == "imagenet"}
    assert tf_env.evaluate(KERAS, theirs) == counts[ours]


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
    with v1.variable_scope("cg"):
        y = net.conv(tf.constant(images), 5, 3, stride=2, padding="VALID", batch_norm=True)
    variables = {v.op.name: v for v in v1.global_variables()}
    session.run(v1.global_variables_initializer())
    weights = session.run(variables["cg/conv0/conv2d/kernel"]).astype(np.float64)
    got, _ = session.run([y, net.update_ops])
    mean, variance = (session.run(variables[f"cg/conv0/batchnorm0/moving_{part}"])
                      for part in ("mean", "variance"))
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

values = rng.normal(size=(2, 6, 6, 7)).astype(np.float32) * 3
with tf.Graph().as_default(), v1.Session() as session:
    net = Layers(training=True, data_format="NHWC", dtype=tf.float32, seed=3)
    x = tf.constant(values)
    with v1.variable_scope("cg"):
        outputs = [
            net.depthwise_conv(x, 3, stride=2, activation=None),
            net.batch_norm(x),
            net.local_response_norm(x, depth_radius=2, bias=2.0, alpha=0.1),
            net.pad_border(x, 1, 2),
            net.conv(x, 4, 1, bias=False, activation="relu6"),
            net.conv(x, 2, 3, stride=2, padding="FIXED", bias=False, activation=None),
        ]
    session.run(v1.global_variables_initializer())
    weights = {v.op.name: session.run(v).astype(np.float64) for v in v1.trainable_variables()}
    depthwise, norm, response, padded, conv, fixed = session.run(outputs)
x = values.astype(np.float64)

def normalise(y):
    return (y - y.mean((0, 1, 2))) / np.sqrt(y.var((0, 1, 2)) + 1e-5)

w = weights["cg/depthwise0/weights"][..., 0]
around = np.pad(x, [(0, 0), (0, 1), (0, 1), (0, 0)])  # SAME: 3 outputs see 7 of 6 pixels
raw = np.zeros((2, 3, 3, 7))
for i in range(3):
    for j in range(3):
        raw[:, i, j] = np.einsum("nhwc,hwc->nc", around[:, 2*i:2*i+3, 2*j:2*j+3], w)
worst["depthwise"] = np.abs(depthwise - normalise(raw)).max()
worst["norm"] = np.abs(norm - np.maximum(normalise(x), 0)).max()
near = np.stack([(x[..., max(0, c-2):c+3] ** 2).sum(-1) for c in range(7)], -1)
worst["response"] = np.abs(response - x / (2 + 0.1 * near) ** 0.75).max()
worst["padded"] = np.abs(padded - np.pad(x, [(0, 0), (1, 2), (1, 2), (0, 0)])).max()
worst["conv"] = np.abs(conv - np.clip(x @ weights["cg/conv0/conv2d/kernel"][0, 0], 0, 6)).max()
# A pixel of zeros on all sides; TensorFlow's own padding has none at the top and on the left here.
around = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
for i in range(3):
    for j in range(3):
        one = np.einsum("nhwc,hwcf->nf", around[:, 2*i:2*i+3, 2*j:2*j+3], weights["cg/conv1/conv2d/kernel"])
        worst["fixed"] = max(worst.get("fixed", 0), np.abs(fixed[:, i, j] - one).max())
assert sorted(weights) == ["cg/batchnorm1/beta", "cg/batchnorm1/gamma", "cg/conv0/conv2d/kernel",
                           "cg/conv1/conv2d/kernel", "cg/depthwise0/batchnorm0/beta",
                           "cg/depthwise0/batchnorm0/gamma", "cg/depthwise0/weights"]
print(json.dumps({k: float(v) for k, v in worst.items()}))
"""


def test_layers_against_numpy(tf_env: Environment) -> None:
    for what, error in tf_env.evaluate(LAYERS).items():
        assert error < 2e-5, what


STEP = """
import json, sys, time
import tensorflow as tf
from tf_cnn_benchmarks import benchmark
from tf_cnn_benchmarks.cli import main
names, sizes = [], []
build_tower = benchmark.build_tower

def watched(*args, **kwargs):
    # The step is the program's own; that its loss is read also tells how large each gradient was.
    tower = build_tower(*args, **kwargs)
    names[:] = [v.op.name for _, v in tower.gradients]
    largest = tf.stack([tf.reduce_max(tf.abs(g)) for g, _ in tower.gradients])
    with tf.control_dependencies([tf.compat.v1.py_func(sizes.append, [largest], [])]):
        tower.loss = tf.identity(tower.loss)
    return tower

benchmark.build_tower = watched
for data, name in json.loads(sys.argv[2]):
    sizes.clear()
    begun = time.perf_counter()
    # One image in two leaves trivial's one hidden unit without a gradient.
    batch = 8 if name == "trivial" else 1 if data == "imagenet" else 2
    rc = main(["x", f"--data_name={data}", f"--model={name}", "--device=cpu", "--num_warmup_batches=0",
               "--num_batches=1", f"--batch_size={batch}", "--weight_decay=0",
               "--init_learning_rate=0.001", "--result_json=" + sys.argv[1]])
    if rc or len(sizes) != 1:
        sys.exit(f"failed: {data} {name}")
    print(f"{data} {name}: {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)
    with open(sys.argv[1] + ".gradients", "a") as file:
        print(json.dumps({n: float(s) for n, s in zip(names, sizes[0], strict=True)}), file=file)
print(json.dumps([[json.loads(line) for line in open(sys.argv[1] + end)] for end in ("", ".gradients")]))
"""


def family(data: str, name: str) -> str:
    """Models that one process trains one after the other."""
    if name.startswith("official"):
        return "official_v2" if name.endswith("_v2") else "official"
    kind = next((kind for kind in ("resnet", "densenet") if name.startswith(kind)), "other")
    return f"{data}-{kind}"


FAMILIES = sorted({family(data, name) for data, name, _, _ in TABLE})


@pytest.mark.parametrize(
    "models",
    [
        pytest.param(
            [("cifar10", "resnet20_v2"), ("cifar10", "densenet40_k12"), ("imagenet", "googlenet")], id="short"
        ),
        *(
            pytest.param(
                [(data, name) for data, name, _, _ in TABLE if family(data, name) == group],
                id=group,
                marks=pytest.mark.long,
            )
            for group in FAMILIES
        ),
    ],
)
def test_a_training_step(tf_env: Environment, tmp_path: Path, models: list[tuple[str, str]]) -> None:
    """The loss is near that of guessing, and every variable gets a gradient."""
    results, gradients = tf_env.evaluate(STEP, tmp_path / "results.json", json.dumps(models), timeout=560)
    assert [run["model"] for run in results] == [name for _, name in models]
    for run, (data, name), sizes in zip(results, models, gradients, strict=True):
        guessing = math.log(1001 if data == "imagenet" else 10)
        assert run["mode"] == "training" and run["images_per_sec"] > 0
        assert run["total_loss"] == pytest.approx(guessing, abs=1), name
        assert sizes and all(0 < size < 1e4 for size in sizes.values()), (name, sizes)


FORWARD = """
import json, sys
from tf_cnn_benchmarks.cli import main
for data, name in json.loads(sys.argv[2]):
    if main(["x", f"--data_name={data}", f"--model={name}", "--device=cpu", "--num_warmup_batches=0",
             "--num_batches=1", "--batch_size=2", "--forward_only", "--result_json=" + sys.argv[1]]):
        sys.exit(f"failed: {data} {name}")
print(json.dumps([json.loads(line) for line in open(sys.argv[1])]))
"""


@pytest.mark.long
def test_a_forward_pass(tf_env: Environment, tmp_path: Path) -> None:
    """Without dropout and with the running averages, of a model of each family that has them."""
    models = [("imagenet", name) for name in ("vgg11", "googlenet", "mobilenet", "inception4", "resnet50_v2")]
    models.append(("cifar10", "densenet40_k12"))
    for run in tf_env.evaluate(FORWARD, tmp_path / "results.json", json.dumps(models), timeout=280):
        # The fresh averages fit nothing, so that a deep network's loss may be large, but not infinite.
        assert run["mode"] == "forward only"
        assert 0 < run["base_loss"] < 1e6, (run["model"], run["base_loss"])
