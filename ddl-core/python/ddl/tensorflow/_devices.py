"""Gives each process its own accelerator."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import tensorflow as tf
from tensorflow.python.client import session as session_module

import ddl
from ddl import _local_gpu
from ddl.tensorflow._world import distributed


def integrate() -> None:
    """Makes the GPU of this rank the only visible one, its memory growing on demand."""
    if not distributed():
        return
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return
    gpu_number = _local_gpu.number(len(gpus))
    try:
        tf.config.set_visible_devices(gpus[gpu_number], "GPU")
        tf.config.experimental.set_memory_growth(gpus[gpu_number], True)
    except RuntimeError as error:
        warnings.warn(
            f"DDL could not give rank {ddl.rank()} a GPU of its own: {error}. "
            "Import ddl before TensorFlow uses a GPU.",
            stacklevel=2,
        )
        return
    _give_to_sessions(gpu_number)


def _give_to_sessions(gpu_number: int) -> None:
    """TF1 sessions choose devices by their own configuration; one that says nothing gets the same GPU."""
    original = session_module.BaseSession.__init__

    @functools.wraps(original)
    def __init__(self: Any, target: str = "", graph: Any = None, config: Any = None) -> None:
        chosen = tf.compat.v1.ConfigProto()
        if config is not None:
            chosen.CopyFrom(config)
        if not chosen.gpu_options.visible_device_list:
            chosen.gpu_options.visible_device_list = str(gpu_number)
            chosen.gpu_options.allow_growth = True
        original(self, target, graph, chosen)

    session_module.BaseSession.__init__ = __init__
