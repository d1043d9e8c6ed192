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
train("parts", "--num_warmup_batches=0", "--num_batches=5")
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
    assert "model/conv0/mean" in names and any("Adam" in name for name in names)
    kept = sorted(path.name for path in (tmp_path / "whole").glob("*.index"))
    assert kept == ["model.ckpt-10.index", "model.ckpt-9.index"]


@pytest.mark.long
def test_training_up_to_a_number_of_epochs(tf_env: Environment, tmp_path: Path) -> None:
    folder, result = tmp_path / "run", tmp_path / "r.json"
    flags = ["--data_name=digits", "--batch_size=1437", f"--train_dir={folder}"]
    six = [*flags, "--num_epochs=6"]
    first, again, more = tf_env.benchmarks(six, six, [*flags, "--num_epochs=8", f"--result_json={result}"])
    assert "Num batches: 6\n" in first.ok().out and "Num epochs:  6.00\n" in first.out
    assert (folder / "model.ckpt-6.index").exists()
    assert "already" in again.error()
    assert "Restored" in more.ok().out
    assert json.loads(result.read_text())["global_step"] == 8


@pytest.mark.long
def test_time_between_checkpoints(tf_env: Environment, tmp_path: Path) -> None:
    code = """
import json, sys, time
import tf_cnn_benchmarks.checkpoint as checkpoint
import tensorflow as tf
v1 = tf.compat.v1
from pathlib import Path
written = []
with tf.Graph().as_default(), v1.Session() as session:
    v1.get_variable("global_step", [], tf.int64, initializer=v1.zeros_initializer(), use_resource=True)
    session.run(v1.global_variables_initializer())
    keeper = checkpoint.Checkpoints(Path(sys.argv[1]), seconds=1, steps=0, keep=3)
    for step in range(1, 9):
        time.sleep(0.3)
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
