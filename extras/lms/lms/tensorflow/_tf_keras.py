"""Blocks of tf_keras (Keras 2): layers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_keras.src.engine.base_layer_utils import call_context
from tf_keras.src.engine.keras_tensor import KerasTensor
from tf_keras.src.mixed_precision.autocast_variable import enable_auto_cast_variables

from lms._errors import LmsError
from lms.tensorflow._blocks import block
from lms.tensorflow._counters import Counters


def wrap_layer(layer: Any, counters: Counters | None) -> None:
    """The layer's call is a block from now on."""
    if hasattr(layer, "_lms_original_call"):
        raise LmsError(f"{layer.name} is a block already: pass every layer once")
    random = [each.name for each in layer._flatten_layers() if _is_random(each)]
    if random:
        raise LmsError(
            f"{layer.name}: tf_keras cannot make the random numbers of {', '.join(random)} again: leave "
            "these layers out of recompute and offload, or use Keras 3"
        )
    original = layer.call

    def call(*args: Any, **kwargs: Any) -> Any:
        flat = tf.nest.flatten((args, kwargs))
        places = [at for at, each in enumerate(flat) if tf.is_tensor(each)]
        if not layer.built or not places or any(isinstance(flat[at], KerasTensor) for at in places):
            return original(*args, **kwargs)
        state = list(layer.non_trainable_variables)
        number = len(layer.losses)
        # whether it trains, which the layers in this one ask
        then = dict(call_context()._state)

        def called(*tensors: Any) -> Any:
            filled = list(flat)
            for at, tensor in zip(places, tensors, strict=True):
                filled[at] = tensor
            again_args, again_kwargs = tf.nest.pack_sequence_as((args, kwargs), filled)
            return original(*again_args, **again_kwargs)

        def first(*tensors: Any) -> Any:
            result = called(*tensors)
            if len(layer.losses) != number:
                raise LmsError(
                    f"{layer.name} adds a loss of its own, which would have no gradient: leave it out of "
                    "recompute and offload"
                )
            return result

        def again(*tensors: Any) -> Any:
            before = [tf.identity(variable) for variable in state]
            context = call_context().enter(
                then["layer"], then["inputs"], then["build_graph"], then["call_context_args"], then["saving"]
            )
            with context, enable_auto_cast_variables(layer._compute_dtype_object):
                result = called(*tensors)
            # moving averages move once a step
            with tf.control_dependencies(tf.nest.flatten(result)):
                for variable, value in zip(state, before, strict=True):
                    variable.assign(value)
            return result

        return block(first, again, [flat[at] for at in places], counters, layer.name)

    layer.call = call
    layer._lms_original_call = original


def _is_random(layer: Any) -> bool:
    return getattr(layer, "_random_generator", None) is not None and getattr(layer, "rate", 1) != 0
