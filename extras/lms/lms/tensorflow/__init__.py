"""Large Model Support for TensorFlow: blocks that compute their activations again, or keep them on the host.

import lms.tensorflow
lms.tensorflow.enable(model, every=4)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lms._errors import LmsError
from lms.tensorflow._blocks import block
from lms.tensorflow._counters import Counters, Stats, reset_stats, stats

__all__ = ["Stats", "enable", "offload", "recompute", "reset_stats", "stats"]


def recompute(target: Any) -> Any:
    """Keeps only the inputs of a layer or function for the backward pass, which computes the rest again.

    Args:
        target: A layer or a model of Keras 3 or tf_keras, which is changed, or a function of tensors. A
            function must give the same each time: its random numbers come from tf.random.stateless_…, and it
            changes no variable.

    Returns:
        The layer, or a function in place of the given one.
    """
    return _wrapped(target, None)


def offload(target: Any) -> Any:
    """Like recompute, and the inputs are kept in the host's memory.

    They are copied there when the forward pass is done with them, and back when the backward pass comes to
    the block.
    """
    return _wrapped(target, Counters())


def enable(model: Any, every: int = 4, *, offload: bool = False) -> int:
    """Makes blocks of a whole model.

    Args:
        model: A functional or sequential model of Keras 3. Of tf_keras, a model whose layers have layers,
            each of which becomes a block.
        every: Operations in a block. Memory is least at about the square root of their number.
        offload: Keeps the inputs of blocks in the host's memory.

    Returns:
        How many blocks it has.

    Raises:
        LmsError: The model has no graph of layers, or a layer that cannot be computed again.
    """
    if every < 1:
        raise ValueError(f"every is {every}: a block has 1 operation or more")
    counters = Counters() if offload else None
    if _is_keras3(model):
        from lms.tensorflow import _keras3

        return _keras3.wrap_model(model, every, counters)
    if not _is_tf_keras(model):
        raise TypeError(
            f"{model!r} is no model of Keras: use lms.tensorflow.recompute or offload for functions"
        )
    from lms.tensorflow import _tf_keras

    layers = [layer for layer in model.layers if len(list(layer._flatten_layers())) > 1]
    if not layers:
        raise LmsError(
            f"{model.name} has no layers of layers: pass those that keep much to lms.tensorflow.recompute or "
            "offload, or use Keras 3"
        )
    for layer in layers:
        _tf_keras.wrap_layer(layer, counters)
    return len(layers)


def _wrapped(target: Any, counters: Counters | None) -> Any:
    if _is_keras3(target):
        from lms.tensorflow import _keras3

        _keras3.wrap_layer(target, counters)
        return target
    if _is_tf_keras(target):
        from lms.tensorflow import _tf_keras

        _tf_keras.wrap_layer(target, counters)
        return target
    if not callable(target):
        raise TypeError(f"{target!r} is neither a layer nor a function")
    return _function(target, counters)


def _function(function: Callable[..., Any], counters: Counters | None) -> Callable[..., Any]:
    name = getattr(function, "__name__", repr(function))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        flat = tf.nest.flatten((args, kwargs))
        places = [at for at, each in enumerate(flat) if tf.is_tensor(each)]

        def called(*tensors: Any) -> Any:
            filled = list(flat)
            for at, tensor in zip(places, tensors, strict=True):
                filled[at] = tensor
            again_args, again_kwargs = tf.nest.pack_sequence_as((args, kwargs), filled)
            return function(*again_args, **again_kwargs)

        return block(called, called, [flat[at] for at in places], counters, name)

    return call


def _is_keras3(target: Any) -> bool:
    return any(
        base.__module__.startswith("keras.src.") and base.__name__ == "Layer" for base in type(target).__mro__
    )


def _is_tf_keras(target: Any) -> bool:
    return any(
        base.__module__.startswith("tf_keras.") and base.__name__ == "Layer" for base in type(target).__mro__
    )
