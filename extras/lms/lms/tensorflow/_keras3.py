"""Blocks of Keras 3: layers, and parts of functional and sequential models."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src import backend
from keras.src.backend.common import global_state
from keras.src.backend.common.variables import AutocastScope

from lms._errors import LmsError
from lms.tensorflow._blocks import block
from lms.tensorflow._counters import Counters

_CONTEXT = "current_call_ctx"
_AUTOCAST = "autocast_scope"


def wrap_layer(layer: Any, counters: Counters | None) -> None:
    """The layer's call is a block from now on."""
    _refuse(layer)
    original = layer.call

    def call(*args: Any, **kwargs: Any) -> Any:
        if not layer.built or backend.in_stateless_scope() or not tf.is_tensor(_first(args, kwargs)):
            return original(*args, **kwargs)
        return _run(original, args, kwargs, [layer], counters, layer.name)

    layer.call = call
    layer._lms_original_call = original


def wrap_model(model: Any, every: int, counters: Counters | None) -> int:
    """Runs of `every` operations of the model's graph are blocks from now on; returns their number."""
    graph = getattr(model, "_functional", model)
    if graph is None or not hasattr(graph, "_run_through_graph"):
        raise LmsError(
            f"{model.name} has no graph of layers: build a Sequential model first, and of a subclass of "
            "Model pass its layers to lms.tensorflow.recompute or offload"
        )
    for layer in model.layers:
        _refuse(layer)
    depths = sorted(graph._nodes_by_depth, reverse=True)
    nodes = [node for depth in depths for node in graph._nodes_by_depth[depth]]
    nodes = [node for node in nodes if node.operation and not node.is_input]
    groups = [nodes[at : at + every] for at in range(0, len(nodes), every)]
    original = graph._run_through_graph

    def run(inputs: Any, operation_fn: Callable[[Any], Any] = lambda op: op, call_fn: Any = None) -> Any:
        flat = tf.nest.flatten(inputs)
        if call_fn is not None or backend.in_stateless_scope() or not all(map(tf.is_tensor, flat)):
            return original(inputs, operation_fn, call_fn)
        values = {id(source): value for source, value in zip(graph.inputs, flat, strict=True)}
        for at, group in enumerate(groups):
            later = {
                id(tensor) for nodes in groups[at + 1 :] for node in nodes for tensor in node.input_tensors
            }
            later |= {id(tensor) for tensor in graph.outputs}
            _run_group(graph, group, operation_fn, values, later, counters)
        return keras.tree.pack_sequence_as(
            graph._outputs_struct, [values[id(tensor)] for tensor in graph.outputs]
        )

    graph._run_through_graph = run
    model._lms_original_run = original
    return len(groups)


def _run_group(
    graph: Any,
    group: Sequence[Any],
    operation_fn: Callable[[Any], Any],
    values: dict[int, Any],
    later: set[int],
    counters: Counters | None,
) -> None:
    produced = {id(tensor) for node in group for tensor in node.outputs}
    needed = {id(tensor) for node in group for tensor in node.input_tensors} - produced
    result_keys = [key for key in produced if key in later]
    keys = [key for key in values if key in needed]

    def part(*tensors: Any) -> list[Any]:
        by_id = dict(zip(keys, tensors, strict=True))
        for node in group:
            args, kwargs = node.arguments.fill_in(by_id)
            results = operation_fn(graph._get_operation_for_node(node))(*args, **kwargs)
            for output, value in zip(node.outputs, keras.tree.flatten(results), strict=True):
                by_id[id(output)] = value
        return [by_id[key] for key in result_keys]

    layers = [node.operation for node in group if isinstance(node.operation, keras.Layer)]
    name = f"{group[0].operation.name} to {group[-1].operation.name}"
    results = _run(part, tuple(values[key] for key in keys), {}, layers, counters, name)
    values.update(zip(result_keys, results, strict=True))
    for key in [key for key in values if key not in later]:
        del values[key]


def _run(
    original: Callable[..., Any],
    args: Any,
    kwargs: Any,
    layers: Sequence[Any],
    counters: Counters | None,
    name: str,
) -> Any:
    flat = tf.nest.flatten((args, kwargs))
    places = [at for at, each in enumerate(flat) if tf.is_tensor(each)]
    masks = [getattr(flat[at], "_keras_mask", None) for at in places]
    trained = _distinct(variable for layer in layers for variable in layer.trainable_variables)
    state = _distinct(variable for layer in layers for variable in layer.non_trainable_variables)
    # as they are before the block changes them: what is random is to be the same again
    before = [tf.identity(variable.value) for variable in state]
    # Keras goes on with the very object.
    context = copy.copy(global_state.get_global_attribute(_CONTEXT))
    autocast = global_state.get_global_attribute(_AUTOCAST)
    losses = _number_of_losses(layers)
    made_masks: list[Any] = []

    def called(tensors: Sequence[Any]) -> Any:
        filled = list(flat)
        for at, tensor, mask in zip(places, tensors, masks, strict=True):
            if mask is not None:
                backend.set_keras_mask(tensor, mask)
            filled[at] = tensor
        again_args, again_kwargs = tf.nest.pack_sequence_as((args, kwargs), filled)
        return original(*again_args, **again_kwargs)

    def first(*tensors: Any) -> Any:
        result = called(tensors[: len(places)])
        made_masks[:] = [getattr(tensor, "_keras_mask", None) for tensor in tf.nest.flatten(result)]
        if _number_of_losses(layers) != losses:
            raise LmsError(
                f"{name} adds a loss of its own, which would have no gradient: leave it out of recompute and "
                "offload"
            )
        return result

    def again(*tensors: Any) -> Any:
        inputs, values = tensors[: len(places)], tensors[len(places) :]
        mapping = [*zip(trained, values, strict=True), *zip(state, before, strict=True)]
        with keras.StatelessScope(mapping, collect_losses=True), _as_then(context, autocast):
            return called(inputs)

    weights = [_raw(variable) for variable in trained]
    inputs = [flat[at] for at in places]
    # Weights stay where they are; only what the block got from other layers is moved.
    outputs = block(first, again, [*inputs, *weights], counters, name, moved=len(inputs))
    for output, mask in zip(tf.nest.flatten(outputs), made_masks, strict=True):
        if mask is not None:
            backend.set_keras_mask(output, mask)
    return outputs


@contextlib.contextmanager
def _as_then(context: Any, autocast: Any) -> Iterator[None]:
    """Keras's state of the time of the forward pass: whether it trains, and in which type it computes."""
    now = {name: global_state.get_global_attribute(name) for name in (_CONTEXT, _AUTOCAST)}
    global_state.set_global_attribute(_CONTEXT, copy.copy(context))
    global_state.set_global_attribute(_AUTOCAST, autocast)
    try:
        yield
    finally:
        for name, value in now.items():
            global_state.set_global_attribute(name, value)


def _raw(variable: Any) -> Any:
    with AutocastScope(None):
        return tf.convert_to_tensor(variable.value)


def _distinct(variables: Any) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())


def _first(args: Any, kwargs: Any) -> Any:
    return next(iter(tf.nest.flatten((args, kwargs))), None)


def _number_of_losses(layers: Sequence[Any]) -> int:
    return sum(len(each._losses) for layer in layers for each in layer._flatten_layers())


def _refuse(layer: Any) -> None:
    if hasattr(layer, "_lms_original_call") or hasattr(layer, "_lms_original_run"):
        raise LmsError(f"{layer.name} is a block already: pass every layer once")
