"""Whole scripts in the styles of 2017 to 2023: two ranks equal one process that takes all of each batch.

A folder is a style. A script saves its weights by digits.save, which also fails if its loss does not fall.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import migrated_job
import numpy as np
import pytest
from rank_processes import PREFIX, mpirun_words
from script_runs import Scripts

HERE = Path(__file__).parent
#: The environments in which the scripts of a style run.
ENVIRONMENTS = {
    "tf1": {"": {"DDL_TF1": "1"}},
    "tf2": {"": {}, "legacy": {"TF_USE_LEGACY_KERAS": "1"}},
    "keras": {
        "": {},
        "torch": {"KERAS_BACKEND": "torch"},
        "legacy": {"TF_USE_LEGACY_KERAS": "1"},
    },
    "torch": {"": {}},
}
#: Not run with each of its environments: what it says then.
REFUSED: dict[tuple[str, str], str] = {
    # Keras 3 says no more: it has scale_loss, and unscales in apply_gradients. See docs/train/horovod.md.
    ("tf2/loss_scale", ""): "'LossScaleOptimizer' object has no attribute 'get_scaled_loss'",
    **{
        (f"keras/{script}", "torch"): "set KERAS_BACKEND=tensorflow, or leave Horovod out and write"
        for script in (
            "accumulated_gradients",
            "custom_loss",
            "custom_train_step",
            "early_stopping",
            "mnist_callbacks",
            "resume_training",
            "tensorflow2_mnist",
            "warmup_and_schedule",
        )
    },
    ("keras/accumulated_gradients", ""): "pass them gradient_accumulation_steps=2",
    ("keras/batch_normalization", "torch"): "synchronized=True is only supported with the TensorFlow backend",
}
#: Their learning rate, initial values or data depend on the number of ranks.
DEPEND_ON_SIZE = {
    *("tf1/horovod_keras", "tf1/ddl_options", "torch/uneven_join", "keras/warmup_and_schedule"),
}
#: Bounds of the difference to one process: rounding, which some optimizers magnify.
ROUNDING = {
    "keras/batch_normalization": 1e-3,
    # The sum over the rows of a rank is rounded to float16.
    "keras/mixed_precision": 0.02,
    "tf1/horovod_session": 2e-4,
    "tf1/keras_generator": 2e-5,
    "tf1/lstm_dynamic_rnn": 2e-5,
    # Adagrad divides its first gradients by their own size.
    "tf2/gradient_accumulators": 2e-5,
    "tf2/loss_scale": 5e-3,
    # fp16 on the way
    "torch/summed_gradients": 2e-3,
}
#: One of each style runs in every test run.
SHORT = {"tf1/layers_cnn", "keras/mnist_callbacks", "tf2/gradient_tape", "torch/ddp_mnist"}


def _weights(folder: Path, rank: int) -> dict[str, np.ndarray]:
    with np.load(folder / f"rank{rank}.npz") as arrays:
        return dict(arrays)


def _distance(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
    assert a.keys() == b.keys() and all(np.isfinite(value).all() for value in a.values())
    return max(float(np.abs(a[name] - b[name]).max()) for name in a)


def _cases() -> Iterator[object]:
    for style, environments in ENVIRONMENTS.items():
        for path in sorted((HERE / style).glob("*.py")):
            script = f"{style}/{path.stem}"
            for name, environment in environments.items():
                marks = [pytest.mark.slow] if script in SHORT and not name else [pytest.mark.long]
                yield pytest.param(
                    script, name, environment, marks=marks, id="-".join([script, name]).strip("-")
                )


@pytest.mark.parametrize(("script", "name", "environment"), _cases())
def test_two_ranks_equal_one(tmp_path: Path, script: str, name: str, environment: dict[str, str]) -> None:
    """The ranks' weights are equal to the last bit; or the script stops with the line to write."""
    program = HERE / f"{script}.py"
    one, two = (Scripts(tmp_path / runs, PYTHONPATH=str(HERE), **environment) for runs in ("one", "two"))
    for runs in (one, two):
        runs.folder.mkdir()
    if (refused := REFUSED.get((script, name))) is not None:
        output = one(program, fails=True)
        assert refused in output, output
        return
    two(program, launcher=mpirun_words(PREFIX, 2))
    ranks = [_weights(two.folder, rank) for rank in range(2)]
    assert _distance(*ranks) == 0.0
    if script not in DEPEND_ON_SIZE:
        one(program)
        assert _distance(_weights(one.folder, 0), ranks[0]) < ROUNDING.get(script, 5e-6)


@pytest.mark.slow
def test_without_the_mode_they_fail(tmp_path: Path) -> None:
    """What the other tests run would not run in TensorFlow 2."""
    run_script = Scripts(tmp_path, PYTHONPATH=str(HERE))
    output = run_script(HERE / "tf1" / "softmax_feed_dict.py", fails=True, DDL_TF1="0")
    assert "module 'tensorflow' has no attribute 'placeholder'" in output


@pytest.mark.slow
def test_job_of_2019_as_it_was(tmp_path: Path) -> None:
    """The program of docs/train/migrating.md before its lines are changed."""
    program = tmp_path / "train.py"
    program.write_text(migrated_job.before(migrated_job.program()))
    assert "tf.train.AdamOptimizer(" in program.read_text()
    output = Scripts(tmp_path, DDL_TF1="1")(program, launcher=mpirun_words(PREFIX, 2))
    assert re.search(r"^ranks 2 accuracy 0\.[89]", output, re.MULTILINE), output
    assert (tmp_path / "model.h5").is_file()
