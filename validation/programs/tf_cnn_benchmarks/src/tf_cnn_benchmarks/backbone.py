"""--backbone_model_path: a training that starts from the variables of another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.checkpoint import stored_names
from tf_cnn_benchmarks.errors import BenchmarkError

LAST = re.compile(r"/affine(\d+)/")


def backbone_values(path: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """By name, what the checkpoint (or the newest of a folder) holds for the model's `variables`, the
    classifier left out; BenchmarkError when that is nothing."""
    checkpoint = tf.train.latest_checkpoint(path) if Path(path).is_dir() else path
    try:
        reader = tf.train.load_checkpoint(checkpoint or path)
    except (tf.errors.OpError, ValueError, RuntimeError):
        raise BenchmarkError(
            f"--backbone_model_path={path} is not a checkpoint; name one such as .../model.ckpt-100, "
            "or its folder"
        ) from None
    shapes = reader.get_variable_to_shape_map()
    stored = stored_names(shapes)
    numbers = {name: int(match[1]) for name in variables if (match := LAST.search(name))}
    head = max(numbers.values())
    fitting = [
        name
        for name, variable in variables.items()
        if numbers.get(name) != head and shapes.get(stored.get(name, "")) == variable.shape.as_list()
    ]
    if not fitting:
        raise BenchmarkError(
            f"--backbone_model_path={path} holds no variable of this model; use one of the same --model"
        )
    return {name: reader.get_tensor(stored[name]) for name in fitting}
