"""Checkpoints: written when due, continued exactly, refused when they do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program_runner import Environment

CONTINUE = """
import json, sys
import numpy as np
import tensorflow as tf
from tf_cnn_benchmarks.cli import main
folder = sys.argv[1]
common = ["x", "--data_name=digits", "--model=resnet20", "--batch_size=64", "--optimizer=adam",
          "--init_learning_rate=0.001"]
def train(name, *flags):
    assert main([*common, f"--train_dir={folder}/{name}", *flags]) == 0
train("whole", "--num_warmup_batches=2", "--num_batches=8", "--save_model_steps=3", "--max_ckpts_to_keep=2")
train("parts", "--num_warmup_batches=1", "--num_batches=4")
train("parts", "--num_warmup_batches=0", "--num_batches=10")
reads = [tf.train.load_checkpoint(f"{folder}/{name}") for name in ("whole", "parts")]
names = [sorted(r.get_variable_to_shape_map()) for r in reads]
assert names[0] == names[1], names
worst = max(float(np.abs(reads[0].get_tensor(n) - reads[1].get_tensor(n)).max()) for n in names[0])
print(json.dumps([worst, names[0], [int(r.get_tensor("global_step")) for r in reads]]))
"""


def test_a_continued_run_equals_an_undisturbed_one(tf_env: Environment, tmp_path: Path) -> None:
    """Weights, batch-normalisation averages, the optimizer's slots, the step count and the order of data."""
    difference, names, steps = tf_env.evaluate(CONTINUE, tmp_path, timeout=240)
    assert difference < 2e-5
    assert steps == [10, 10]
    assert "v/cg/conv0/conv2d/kernel/Adam" in names
    for path in ("graph.pbtxt", "model.ckpt-10.meta"):
        assert (tmp_path / "whole" / path).stat().st_size > 10_000
    kept = sorted(path.name for path in (tmp_path / "whole").glob("*.index"))
    # Every third after the warm-up.
    assert kept == ["model.ckpt-10.index", "model.ckpt-8.index"]


def test_an_interrupted_training_ends_at_the_same_step(tf_env: Environment, tmp_path: Path) -> None:
    """As a job that a scheduler starts again: after 5 of 10 steps, and once more when nothing is left. What
    is due comes as many steps after the warm-up as without the interruption. An epoch is one step here."""
    folder, result = tmp_path / "run", tmp_path / "r.json"
    flags = ["--data_name=digits", "--batch_size=1437", "--num_warmup_batches=2", f"--train_dir={folder}",
             "--save_model_steps=4", "--eval_during_training_at_specified_steps=1,6",
             f"--result_json={result}"]  # fmt: skip
    runs = [[*flags, length] for length in ("--num_batches=3", "--num_batches=8", "--num_epochs=8")]
    first, rest, nothing = tf_env.benchmarks(*runs)
    results = [json.loads(line) for line in result.read_text().splitlines()]
    assert [(run["global_step"], run["steps"]) for run in results] == [(5, 3), (10, 3), (10, 0)]
    assert [[e["global_step"] for e in run["evaluations"]] for run in results] == [[3, 5], [8, 10], [10]]
    saved = sorted(int(path.stem.partition("-")[2]) for path in folder.glob("*.index"))
    assert saved == [5, 6, 10]
    assert "Mode:        training + evaluation\n" in first.ok().out
    lines = rest.ok().out.partition("==========\n")[2].splitlines()
    short = [line.split("\t")[0].partition(" = ")[0].partition(str(folder))[0] for line in lines]
    assert short == [
        *("Generating training model", "Generating evaluation model", "Initializing graph", "Restored "),
        *("Running warm up", "Done warm up", "Step", "1", "Running evaluation at global_step 8"),
        *("Accuracy @ 1", "Resuming training", "-" * 64, short[12], "-" * 64, "Done with training"),
        *("Running final evaluation at global_step 10", "Accuracy @ 1"),
    ]
    assert short[12].startswith("total images/sec: ")
    assert "Num batches: 8\n" in nothing.ok().out and "Num epochs:  8.00\n" in nothing.out
    assert "nothing is left to train" in nothing.err and "total images/sec: 0.00\n" in nothing.out


def test_time_between_checkpoints(tf_env: Environment, tmp_path: Path) -> None:
    """Counted from the last one on, by a clock of the test's own."""
    code = """
import json, sys, types
import tf_cnn_benchmarks.checkpoint as checkpoint
import tensorflow as tf
v1 = tf.compat.v1
from pathlib import Path
written = []
now = 100.0
checkpoint.time = types.SimpleNamespace(monotonic=lambda: now)
with tf.Graph().as_default(), v1.Session() as session:
    v1.get_variable("global_step", [], tf.int64, initializer=v1.zeros_initializer(), use_resource=True)
    session.run(v1.global_variables_initializer())
    keeper = checkpoint.Checkpoints(Path(sys.argv[1]), seconds=1, steps=0, keep=3)
    for step in range(1, 9):
        now += 0.3
        keeper.after_step(session, step)
        if keeper.newest() and (not written or written[-1] != keeper.newest()):
            written.append(keeper.newest())
print(json.dumps(written))
"""
    written = tf_env.evaluate(code, tmp_path)
    assert [name.rpartition("-")[2] for name in written] == ["4", "8"]


def test_what_does_not_fit_is_said(tf_env: Environment, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    flags = ["--data_name=digits", f"--train_dir={folder}", "--num_batches=1", "--num_warmup_batches=0"]
    (tmp_path / "file").write_text("")
    blocked = [flags[0], f"--train_dir={tmp_path}/file/below", *flags[2:]]
    runs = [[*flags[:2], "--eval"], flags, [*flags, "--model=lenet"], blocked]
    empty, trained, other, unwritable = tf_env.benchmarks(*runs)
    assert "holds no checkpoint" in empty.error()
    trained.ok()
    assert "model.ckpt-1" in other.error() and "--model" in other.error()
    assert "--train_dir" in unwritable.error()


def test_a_damaged_checkpoint_is_named(tf_env: Environment, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    flags = ["--data_name=digits", f"--train_dir={folder}", "--num_batches=1", "--num_warmup_batches=0"]
    tf_env.benchmarks(flags)[0].ok()
    data = next(folder.glob("*.data-*"))
    data.write_bytes(data.read_bytes()[:-7])
    assert "model.ckpt-1" in tf_env.benchmarks(flags)[0].error()


BACKBONE = """
import json, sys
import numpy as np
import tensorflow as tf
from tf_cnn_benchmarks.cli import main
folder = sys.argv[1]
def train(name, *flags):
    assert main(["x", "--model=lenet", "--batch_size=16", f"--train_dir={folder}/{name}",
                 "--num_warmup_batches=0", "--num_batches=1", "--optimizer=momentum", *flags]) == 0
    read = tf.train.load_checkpoint(f"{folder}/{name}")
    return {n: read.get_tensor(n) for n in read.get_variable_to_shape_map()}
digits = ["--data_name=digits"]
taught = train("taught", *digits, "--init_learning_rate=0.5")
fresh = train("fresh", *digits, "--init_learning_rate=0")
still = ["--init_learning_rate=0", f"--backbone_model_path={folder}/taught"]
same = train("same", *digits, *still, "--num_gpus=2", "--variable_update=replicated", "--device=cpu")
# CIFAR-10 has three channels, digits one: the first convolution has another shape.
colour = train("colour", "--data_name=cifar10", *still)
plain = train("plain", "--data_name=cifar10", "--init_learning_rate=0")
def like(a, b):
    return sorted(n for n in a if n.startswith("v/cg/") and not n.endswith("Momentum")
                  and a[n].shape == b[n].shape and (a[n] == b[n]).all())
print(json.dumps([like(same, taught), like(same, fresh), like(colour, taught), like(colour, plain),
                  int(same["global_step"])]))
"""


def test_backbone_model_path(tf_env: Environment, tmp_path: Path) -> None:
    """A new training starts from the variables of another that fit, but for the classifier's; at step 0."""
    same, same_fresh, colour, colour_fresh, step = tf_env.evaluate(BACKBONE, tmp_path)
    layers = [f"v/cg/conv{n}/{v}" for n in (1, 2) for v in ("biases", "conv2d/kernel")]
    layers += ["v/cg/affine0/biases", "v/cg/affine0/weights"]
    first = ["v/cg/conv0/biases", "v/cg/conv0/conv2d/kernel"]
    classifier = ["v/cg/affine1/biases", "v/cg/affine1/weights"]
    assert same == sorted(first + layers) and same_fresh == classifier
    assert set(layers) <= set(colour) and first[1] not in colour
    assert set(classifier) <= set(colour_fresh) and first[1] in colour_fresh
    assert step == 1


def test_a_wrong_backbone_is_said(tf_env: Environment, tmp_path: Path) -> None:
    flags = ["--data_name=digits", "--num_batches=1", "--num_warmup_batches=0"]
    absent, other = tf_env.benchmarks(
        [*flags, f"--backbone_model_path={tmp_path}/none"],
        [*flags, f"--backbone_model_path={tmp_path}"],
    )
    assert "is not a checkpoint" in absent.error() and "is not a checkpoint" in other.error()


NAMES = """
import json, sys
import tensorflow as tf
from tf_cnn_benchmarks.checkpoint import model_variables
from tf_cnn_benchmarks.models import find_model
from tf_cnn_benchmarks.params import parse
from tf_cnn_benchmarks.towers import build_tower
v1 = tf.compat.v1
found = []
for data, name, size in (("imagenet", "resnet50_v1.5", 64), ("imagenet", "vgg11", 224),
                         ("cifar10", "resnet20", 32)):
    params = parse(["x", f"--data_name={data}", f"--model={name}"])
    with tf.Graph().as_default(), v1.variable_scope("v0"):
        build_tower(params, find_model(name, data), tf.zeros([1, size, size, 3]), tf.zeros([1], tf.int32),
                    classes=1001, data_format="NHWC", training=False)
        found.append(list(model_variables()))
print(json.dumps(found))
"""


def _layer(number: int, where: str = "", *, normalised: bool = True) -> list[str]:
    """The variables of a convolution, in the order in which they are made."""
    kinds = ("gamma", "beta", "moving_mean", "moving_variance") if normalised else ()
    bare = [] if normalised else [f"v/cg/{where}conv{number}/biases"]
    scope = f"v/cg/{where}conv{number}/"
    return [f"{scope}conv2d/kernel", *bare, *(f"{scope}batchnorm{number}/{kind}" for kind in kinds)]


def test_variables_have_the_names_that_users_know(tf_env: Environment) -> None:
    """Of the benchmark that wrote their checkpoints. A block's projection comes before its other layers."""
    resnet50, vgg11, resnet20 = tf_env.evaluate(NAMES)
    wanted, number = _layer(0), 1
    for block in range(16):
        for _ in range(4 if block in (0, 3, 7, 13) else 3):
            wanted += _layer(number, f"resnet_v1.5{block}/")
            number += 1
    assert resnet50 == [*wanted, "v/cg/affine0/weights", "v/cg/affine0/biases"]
    convolutions = [name for n in range(8) for name in _layer(n, normalised=False)]
    assert vgg11 == convolutions + [f"v/cg/affine{n}/{v}" for n in range(3) for v in ("weights", "biases")]
    assert resnet20[:-2] == [name for n in range(19) for name in _layer(n)]


NUMBERED = """
import json, sys
import tensorflow as tf
from tf_cnn_benchmarks.cli import main
v1 = tf.compat.v1
folder = sys.argv[1]
common = ["x", "--data_name=digits", "--model=lenet", "--num_warmup_batches=0", "--optimizer=momentum"]
assert main([*common, f"--train_dir={folder}/one", "--num_batches=20"]) == 0
read = tf.train.load_checkpoint(f"{folder}/one")
values = {name: read.get_tensor(name) for name in read.get_variable_to_shape_map()}
# As with --variable_update=replicated: the first device's copy.
with tf.Graph().as_default(), v1.Session() as session:
    variables = {name.replace("v/", "v0/", 1): v1.Variable(value) for name, value in values.items()}
    session.run(v1.global_variables_initializer())
    v1.train.Saver(variables).save(session, f"{folder}/two/model.ckpt", global_step=20)
for name in ("one", "two"):
    for what in ("--eval", "--num_batches=22"):
        assert main([*common, f"--train_dir={folder}/{name}", what, f"--result_json={folder}/r.json"]) == 0
found = [json.loads(line) for line in open(f"{folder}/r.json")]
print(json.dumps([[run["top_1_accuracy"], run.get("total_loss"), run.get("global_step")] for run in found]))
"""


def test_a_checkpoint_of_numbered_copies_is_read(tf_env: Environment, tmp_path: Path) -> None:
    """Evaluated and continued, with the optimizer's slots, it does what one of this program's does."""
    (tmp_path / "two").mkdir()
    one, continued, two, continued_two = tf_env.evaluate(NUMBERED, tmp_path)
    assert one == two and continued[2] == continued_two[2] == 22
    assert continued[1] == pytest.approx(continued_two[1], rel=1e-5)
