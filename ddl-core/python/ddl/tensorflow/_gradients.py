"""Averaging gradients over the ranks, each gradient once."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
from ddl_drift.sessions import NotedUpdate, note
from ddl_drift.tensorflow import name_of

from ddl.tensorflow._agreement import describe_gradient
from ddl.tensorflow._collectives import Reduction, allreduce, allreduce_n, one_reduction
from ddl.tensorflow._graph import descendants, outermost
from ddl.tensorflow._world import distributed

#: Set on a gradient that has been reduced, so that an optimizer does not reduce it again.
_MARK = "_ddl_reduced"


def _call_name(pairs: Sequence[tuple[Any, Any]], chosen: Sequence[int]) -> str:
    """The name of the all-reduce of the chosen gradients.

    It differs whenever the set or order of the variables does, so that DDL finds ranks that disagree. DDL
    shows the first 127 bytes in the error; the variables without a gradient, the usual cause, therefore
    come first.
    """
    names = [name_of(pairs[i][1]) for i in chosen]
    missing = [name_of(v) for g, v in pairs if g is None]
    digest = zlib.crc32("\n".join(names).encode())
    first = f"gradients of {len(names)}/{len(pairs)} variables"
    without = f", none for {', '.join(missing)}" if missing else ""
    return f"{first}{without[:60]} [{names[0]}..{names[-1]}] #{digest:08x}"


def _in_groups(indices: list[int], tensors: Sequence[Any]) -> list[list[int]]:
    """Splits by DDL_GROUP_SIZE, the elements that one grouped all-reduce should have at least.

    Without it there is one group. The last gradients come first: the backward pass computes them first, so
    that their group can be under way while it goes on.
    """
    text = os.environ.get("DDL_GROUP_SIZE", "")
    if not text:
        return [indices]
    if not text.isdigit() or int(text) == 0:
        raise ValueError(f"DDL_GROUP_SIZE is {text!r}; it must be a number of elements, 1 or more")
    groups: list[list[int]] = []
    elements = int(text)
    for index in reversed(indices):
        if elements >= int(text):
            groups.append([])
            elements = 0
        groups[-1].append(index)
        elements += tensors[index].shape.num_elements() or 0
    return groups


def grads_reduce(
    grads_and_vars: Iterable[tuple[Any, Any]],
    average: bool = True,
    *,
    sparse_as_dense: bool | None = None,
) -> list[tuple[Any, Any]]:
    """Averages (or sums) gradients over all ranks with one grouped all-reduce for each element type.

    Args:
        grads_and_vars: Pairs of gradient and variable, the same variables in the same order on all ranks. A
            gradient that is None stays None and must be so on all ranks.
        average: Average if True, else sum.
        sparse_as_dense: Convert tf.IndexedSlices to dense tensors first, which is quicker where most rows
            have a gradient. Otherwise they stay slices, those of all ranks together: then optimizers move
            the rows that some rank has used, and no others. None takes the environment variable
            DDL_SPARSE_AS_DENSE, 0 or 1, by default 0.

    Returns:
        Pairs in the same order. Gradients that were reduced already by this function are returned as they
        are. With one rank nothing is changed.

    Raises:
        TypeError: A gradient of a type that DDL cannot reduce, named by its variable.
        tf.errors.InvalidArgumentError: Ranks have gradients for different variables; says which.
    """
    pairs = list(grads_and_vars)
    if not distributed():
        return pairs
    op: Reduction = "avg" if average else "sum"
    if sparse_as_dense is None:
        sparse_as_dense = _sparse_as_dense_by_environment()
    gradients = [g for g, _ in pairs]
    dense: dict[Any, list[int]] = {}
    sparse: list[int] = []
    for i, (gradient, variable) in enumerate(pairs):
        if gradient is None or is_reduced(gradient):
            continue
        if isinstance(gradient, tf.IndexedSlices) and sparse_as_dense:
            gradients[i] = gradient = tf.convert_to_tensor(gradient)
        if isinstance(gradient, tf.IndexedSlices):
            sparse.append(i)
            continue
        gradients[i] = gradient = tf.convert_to_tensor(gradient)
        if not (gradient.dtype.is_floating or gradient.dtype in (tf.int32, tf.int64)):
            raise TypeError(
                f"the gradient of {name_of(variable)} is of type {gradient.dtype.name}, which DDL "
                "cannot reduce; split a complex variable into its real and imaginary part"
            )
        dense.setdefault(gradient.dtype, []).append(i)
    with one_reduction():
        for indices in dense.values():
            for group in _in_groups(indices, gradients):
                reduced = allreduce_n([gradients[i] for i in group], op, _call_name(pairs, group))
                for i, result in zip(group, reduced, strict=True):
                    gradients[i] = mark_reduced(result)
        for i in sparse:
            gradients[i] = mark_reduced(allreduce(gradients[i], op, _call_name(pairs, [i])))
    if dense or sparse:
        note_update(pairs, gradients[[*sparse, *(i for indices in dense.values() for i in indices)][0]])
    return [(gradient, variable) for gradient, (_, variable) in zip(gradients, pairs, strict=True)]


def clip_by_global_norm(
    grads_and_vars: Iterable[tuple[Any, Any]], clip_norm: Any
) -> tuple[list[tuple[Any, Any]], Any]:
    """Averages gradients over all ranks, and then clips them together, as tf.clip_by_global_norm does.

    For a loop of your own. Clipped first, on each rank by the norm of its own gradients, the average would be
    another
    one than that of a single process with the whole batch. Keras' own `global_clipnorm`, `clipnorm` and
    `clipvalue` clip
    behind the average anyway. With Horovod's optimizers clip between `synchronize()` and the step.

    Args:
        grads_and_vars: As for `grads_reduce`.
        clip_norm: The largest norm of all gradients together; a number or a scalar tensor.

    Returns:
        The pairs, which optimizers do not average again, and the norm before it was clipped.
    """
    pairs = grads_reduce(grads_and_vars)
    clipped, norm = tf.clip_by_global_norm([gradient for gradient, _ in pairs], clip_norm)
    if distributed():
        clipped = [gradient if gradient is None else mark_reduced(gradient) for gradient in clipped]
    return [(gradient, variable) for gradient, (_, variable) in zip(clipped, pairs, strict=True)], norm


def _sparse_as_dense_by_environment() -> bool:
    text = os.environ.get("DDL_SPARSE_AS_DENSE", "0")
    if text not in ("0", "1"):
        raise ValueError(f"DDL_SPARSE_AS_DENSE is {text!r}; it must be 0 or 1")
    return text == "1"


def note_update(pairs: Sequence[tuple[Any, Any]], reduced: Any) -> None:
    """Remembers on a TF1 graph what one update trains, for the comparisons of the ranks."""
    if tf.executing_eagerly() or tf.inside_function():
        return
    tensor = reduced.values if isinstance(reduced, tf.IndexedSlices) else reduced
    note(
        NotedUpdate(tensor.op, [variable for _, variable in pairs], [describe_gradient(g) for g, _ in pairs])
    )


def mark_reduced(gradient: Any) -> Any:
    """Notes on the gradient that it is the same on all ranks, and returns it."""
    setattr(gradient, _MARK, True)
    if not tf.executing_eagerly():
        part = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
        graph = part.graph
        if not hasattr(graph, _MARK):
            setattr(graph, _MARK, {})
        getattr(graph, _MARK)[part.op.name] = part.op
    return gradient


def is_reduced(gradient: Any) -> bool:
    """True for a gradient that is itself a result of `grads_reduce`."""
    return getattr(gradient, _MARK, False) is True


def all_come_from_reduced(pairs: list[tuple[Any, Any]]) -> bool:
    """True when each gradient has been reduced, or made from reduced ones, say by clipping.

    In eager execution nothing tells where a tensor comes from, so that there clipped gradients count as not
    reduced.
    """
    for gradient, _ in pairs:
        if gradient is None or is_reduced(gradient):
            continue
        if tf.executing_eagerly():
            return False
        tensor = outermost(gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient)
        if not hasattr(tensor, "op"):
            return False
        reduced = reduced_operators(tensor.graph)
        if not reduced or tensor.op.name not in descendants(tensor.graph, "reduced gradients", reduced):
            return False
    return True


def reduced_operators(graph: Any) -> list[Any]:
    """The operators of a graph whose outputs are reduced gradients."""
    return list(getattr(graph, _MARK, {}).values())


class DistributedGradientTape(tf.GradientTape):  # type: ignore[misc]
    """A tf.GradientTape whose `gradient` averages over all ranks.

    For training loops that update variables without an optimizer; where an optimizer follows, it averages
    by itself, and finds out that these gradients need not be averaged again.

    Args:
        tape: A tape to take over, recorded or about to be; else a new one is made from the other arguments.
        average: Average if True, else sum.
        sparse_as_dense: As in `grads_reduce`.
        options: As for tf.GradientTape.
    """

    def __init__(
        self,
        tape: tf.GradientTape | None = None,
        *,
        average: bool = True,
        sparse_as_dense: bool | None = None,
        **options: Any,
    ) -> None:
        if tape is None:
            super().__init__(**options)
        else:
            if options:
                raise TypeError(f"{', '.join(options)}: give these to the tape that is taken over")
            self.__dict__.update(tape.__dict__)
        self._ddl_average = average
        self._ddl_sparse_as_dense = sparse_as_dense

    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """The gradients of tf.GradientTape.gradient, averaged over all ranks."""
        gradients = super().gradient(target, sources, *args, **kwargs)
        flat_gradients = tf.nest.flatten(gradients)
        flat_sources = tf.nest.flatten(sources)
        reduced = grads_reduce(
            zip(flat_gradients, flat_sources, strict=True),
            average=self._ddl_average,
            sparse_as_dense=self._ddl_sparse_as_dense,
        )
        # Imports this module.
        from ddl.tensorflow import _drift

        _drift.after_averaging(flat_sources)
        return tf.nest.pack_sequence_as(gradients, [gradient for gradient, _ in reduced])
