"""Blocks of a model: only their inputs are kept for the backward pass, which computes the rest again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.eager import record
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_util
from tensorflow.python.ops.ref_variable import RefVariable

from lms._errors import LmsError
from lms.tensorflow._counters import Counters


def in_xla() -> bool:
    """Whether what is built now is compiled by XLA."""
    return not tf.executing_eagerly() and bool(
        control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph())
    )


def block(
    first: Callable[..., Any],
    again: Callable[..., Any],
    tensors: Sequence[Any],
    counters: Counters | None,
    name: str,
    moved: int | None = None,
) -> Any:
    """What `first` makes of the tensors; the backward pass differentiates what `again` makes of them.

    Args:
        first: Takes the tensors, and returns a tensor or a structure of tensors.
        again: The same without effects.
        tensors: All that can have a gradient, beside variables that `first` reads by itself.
        counters: The tensors are kept in the host's memory, and counted here; None keeps them where they are.
        name: Of the block, for errors.
        moved: So many of the tensors, the first ones, come from elsewhere in the model; all, if it is None.
            The others live anyway, and are not moved.
    """
    if counters is not None and in_xla():
        raise LmsError(
            f"{name}: XLA chooses by itself where tensors are, and cannot keep them on the host: compile the "
            "model with jit_compile=False, or use lms.tensorflow.recompute"
        )
    structure: list[Any] = []

    @tf.custom_gradient  # type: ignore[untyped-decorator,unused-ignore]
    def run(*inputs: Any) -> Any:
        with record.stop_recording():
            result = first(*inputs)
            outputs = tf.nest.flatten(result)
            structure.append(result)
            moved_inputs, rest = list(inputs[:moved]), list(inputs[len(inputs[:moved]) :])
            if counters is not None:
                moved_inputs = _swapped_out(moved_inputs, outputs)

        def backward(*slopes: Any, variables: Any = None) -> Any:
            device = outputs[0].device or None
            all_inputs = [*_after(slopes, moved_inputs, device, counters), *rest]
            watched = [tensor for tensor in all_inputs if tensor.dtype.is_floating or tensor.dtype.is_complex]
            variable_list = list(variables or ())
            for variable in variable_list:
                if isinstance(variable, RefVariable):
                    raise LmsError(
                        f"{name}: {variable.op.name} is a variable of TensorFlow 1's kind, which has no "
                        "gradient in a block: call tf.enable_resource_variables() before variables are made"
                    )
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(watched)
                for variable in variable_list:
                    tape.watch(variable)
                with tf.device(device) if tf.executing_eagerly() else contextlib.nullcontext():
                    results = tf.nest.flatten(again(*all_inputs))
            gradients = tape.gradient(results, [*watched, *variable_list], output_gradients=list(slopes))
            of_watched = iter(gradients[: len(watched)])
            of_inputs = [
                next(of_watched) if any(tensor is each for each in watched) else None for tensor in all_inputs
            ]
            return (of_inputs, gradients[len(watched) :]) if variables is not None else of_inputs

        return outputs, backward

    outputs = run(*tensors)
    return tf.nest.pack_sequence_as(structure[-1], tf.nest.flatten(outputs))


def _swapped_out(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """Copies on the host, which are made when the block is done with the inputs."""
    with tf.control_dependencies(outputs), tf.device("/CPU:0"), tf.name_scope("lms/swap_out"):
        return [tf.identity(tensor) for tensor in inputs]


def _after(
    slopes: Sequence[Any], tensors: Sequence[Any], device: str | None, counters: Counters | None
) -> list[Any]:
    """The inputs once the backward pass has come to the block, and no earlier."""
    if in_xla():
        # which knows no control dependencies
        return list(gen_xla_ops.xla_optimization_barrier([*tensors, *slopes])[: len(tensors)])
    scope = "lms/swap_in" if counters is not None else "lms/kept"
    with tf.control_dependencies(list(slopes)), tf.name_scope(scope):
        if counters is not None:
            with tf.control_dependencies([counters.add(tensors)]), tf.device(device):
                return [tf.identity(tensor) for tensor in tensors]
        return [tf.identity(tensor) for tensor in tensors]
