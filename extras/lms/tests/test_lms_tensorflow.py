"""lms.tensorflow: weights after training, what is on the host, and the memory that a step takes."""

from __future__ import annotations

from typing import Any

import pytest
from lms_programs import PROGRAMS

KERAS3 = ("models", "layers", "mixed_precision", "masks", "other_losses")
OTHERS = ("eagerly", "compiled_by_xla", "after_training", "of_tf_keras", "functions", "where_tensors_are")


@pytest.mark.parametrize("cases", [KERAS3, OTHERS], ids=["keras3", "others"])
def test_cases(programs: Any, cases: tuple[str, ...]) -> None:
    ended = programs.python(PROGRAMS / "tensorflow_cases.py", *cases, limit=400).ok()
    assert set(ended.out.splitlines()) >= {f"passed {case}" for case in cases}, ended.out + ended.err


def test_a_step_takes_less_memory(programs: Any) -> None:
    """36 operations in blocks of 6 keep 6 inputs and what one block makes, not what all make."""
    ended = {
        way: programs.python(PROGRAMS / "tensorflow_memory.py", way).ok()
        for way in ("off", "recompute", "offload")
    }
    tensors = {way: float(each.value("tensors")) for way, each in ended.items()}
    assert tensors["off"] > 70, tensors
    assert max(tensors["recompute"], tensors["offload"]) < tensors["off"] / 2, tensors
    moved = {way: int(each.value("moved")) for way, each in ended.items()}
    # 7 blocks: the inputs of the two steps, of 2 and of 512 rows of 2048
    assert moved["off"] == moved["recompute"] == 0 and moved["offload"] == 7 * 514 * 2048 * 4, moved


def test_former_module_says_what_to_write(programs: Any) -> None:
    line = "from tensorflow_large_model_support import LMS"
    ended = programs.run(str(programs.prefix / "bin/python"), "-c", line)
    assert ended.status == 1 and "lms.tensorflow.enable(model, offload=True)" in ended.err
