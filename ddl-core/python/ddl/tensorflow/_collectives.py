"""The operators as Python functions, for eager execution, tf.function and TF1 graphs.

Ranks must issue their collectives in the same order. In eager execution that is the order of the program.
Within a graph each new operator is chained behind the one made before it by a control dependency, since
TensorFlow would otherwise run independent ones in any order. Should ranks differ all the same, DDL compares
the names and fails on every rank.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_util

import ddl
from ddl.tensorflow._library import operators
from ddl.tensorflow._world import distributed

Reduction = Literal["sum", "avg", "min", "max", "product"]


class _Chain:
    """The operators made last in one graph and control flow context."""

    def __init__(self) -> None:
        self.bcast: Any = None
        self.explicit: Any = None
        self.gradients: Any = None
        self.reduction: Any = None
        self.explicit_follows_gradients = False


_chains: weakref.WeakKeyDictionary[Any, dict[Any, _Chain]] = weakref.WeakKeyDictionary()
_current = threading.local()


@contextlib.contextmanager
def one_reduction() -> Iterator[None]:
    """The all-reduces made within belong together: they are the gradients of one training step."""
    before = getattr(_current, "reduction", None)
    _current.reduction = object()
    try:
        yield
    finally:
        _current.reduction = before


class _Chained:
    """Builds one operator behind those made before it in the same graph.

    A function runs as a whole, so there each follows the one before. Of a TF1 graph a step runs a part, and
    what an operator follows runs with it. Hence there broadcasts, which belong to the start of a run, follow
    broadcasts only; and the gradients of one optimizer do not follow those of another, whose backward pass
    and placeholders would have to run with them.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self._reduction = getattr(_current, "reduction", None)

    def __enter__(self) -> _Chained:
        followed: list[Any] = []
        if self._graph is not None:
            if control_flow_util.GraphOrParentsInXlaContext(self._graph):
                raise NotImplementedError(
                    f"XLA cannot compile DDL's {self._kind}, but this tf.function has jit_compile=True; use "
                    "jit_compile=False for the function that communicates and True for functions it calls"
                )
            contexts = _chains.setdefault(self._graph, {})
            self._chain = contexts.setdefault(self._graph._get_control_flow_context(), _Chain())
            followed = [operator for reference in self._followed() if (operator := reference()) is not None]
        self._control = tf.control_dependencies(followed)
        self._control.__enter__()
        return self

    def _followed(self) -> list[Any]:
        assert self._graph is not None
        chain = self._chain
        if self._graph.building_function:
            candidates = [chain.bcast, chain.explicit, chain.gradients]
        elif self._kind == "bcast":
            candidates = [chain.bcast]
        elif self._reduction is None:
            candidates = [chain.explicit, chain.gradients]
        elif chain.reduction is self._reduction:
            candidates = [chain.gradients]
        else:
            candidates = [] if chain.explicit_follows_gradients else [chain.explicit]
        return [candidate for candidate in candidates if candidate is not None]

    def record(self, output: Any) -> None:
        """Records the operator that `output` comes from as the last one."""
        if self._graph is None:
            return
        # Weak, as the operator keeps its graph alive, which is the key of the chains.
        operator = weakref.ref(output.op)
        chain = self._chain
        if self._kind == "bcast":
            chain.bcast = operator
        elif self._reduction is None:
            chain.explicit = operator
            chain.explicit_follows_gradients = chain.gradients is not None
        else:
            chain.gradients, chain.reduction = operator, self._reduction

    def __exit__(self, *exception: Any) -> None:
        self._control.__exit__(*exception)


def _check_type(tensor: Any, subject: str) -> None:
    supported = (tf.float32, tf.float16, tf.float64, tf.bfloat16, tf.int32, tf.int64)
    if tensor.dtype.base_dtype not in supported:
        raise TypeError(
            f"DDL cannot communicate {subject} of type {tensor.dtype.name}; cast it to one of "
            f"{', '.join(t.name for t in supported)} first"
        )


def allreduce(
    tensor: Any,
    op: Reduction = "sum",
    name: str | None = None,
    *,
    mpi: bool = False,
    check: float = 0.0,
) -> Any:
    """Reduces a tensor over all ranks, element by element; differentiable for op "sum" and "avg".

    Args:
        tensor: Tensor, variable or array of the same shape and type on all ranks. tf.IndexedSlices give the
            slices of all ranks, in the order of the ranks, divided by the number of ranks for "avg".
        op: "sum", "avg", "min", "max" or "product".
        name: Must be the same on all ranks and is compared; a difference is an error on every rank.
        mpi: Use the MPI library's own MPI_Allreduce, the baseline to compare with.
        check: When positive, reduce by MPI_Allreduce too and report on standard error where the results
            differ by more than `check * max(1, |MPI's|)`.

    Returns:
        A tensor of the same shape and type, the same on all ranks.

    Raises:
        TypeError: A type that DDL cannot reduce.
        tf.errors.OpError: DDL failed; its message says what, where and the remedy.
    """
    if isinstance(tensor, tf.IndexedSlices):
        return _gather_slices(tensor, op, name or "allreduce")
    tensor = tf.convert_to_tensor(tensor)
    _check_type(tensor, "a tensor")
    with _Chained("allreduce") as chain:
        result = operators.all_reduce(tensor, op=op, mpi=mpi, check=check, tensor_name=name or "")
        chain.record(result)
    return result


def allreduce_n(
    tensors: Sequence[Any],
    op: Reduction = "avg",
    name: str | None = None,
    *,
    mpi: bool = False,
    check: float = 0.0,
) -> list[Any]:
    """Reduces several tensors over all ranks: one grouped operation for each element type among them.

    Args and errors as in `allreduce`; the number of tensors and their shapes must be the same on all ranks.

    Returns:
        The results in the order of `tensors`.
    """
    converted = [tf.convert_to_tensor(tensor) for tensor in tensors]
    groups: dict[Any, list[int]] = {}
    for index, tensor in enumerate(converted):
        _check_type(tensor, f"tensor {index + 1} of {len(converted)}")
        groups.setdefault(tensor.dtype.base_dtype, []).append(index)
    results: list[Any] = [None] * len(converted)
    for indices in groups.values():
        with _Chained("allreduce") as chain:
            reduced = operators.all_reduce_n(
                [converted[i] for i in indices], op=op, mpi=mpi, check=check, tensor_name=name or ""
            )
            chain.record(reduced[0])
        for index, result in zip(indices, reduced, strict=True):
            results[index] = result
    return results


def bcast(tensor: Any, root: int = 0, name: str | None = None) -> Any:
    """Returns rank `root`'s tensor on every rank; differentiable.

    Args:
        tensor: The same shape and type on all ranks.
        root: The rank whose values are taken.
        name: Must be the same on all ranks and is compared.
    """
    tensor = tf.convert_to_tensor(tensor)
    _check_type(tensor, "a tensor")
    if not 0 <= root < ddl.size():
        raise ValueError(f"bcast: root is {root}, but the ranks are 0 to {ddl.size() - 1}")
    with _Chained("bcast") as chain:
        result = operators.bcast(tensor, root=root, tensor_name=name or "")
        chain.record(result)
    return result


def _gather_slices(slices: Any, op: str, name: str) -> Any:
    """The slices of all ranks as one tf.IndexedSlices.

    The slices stay slices, so that an optimizer which updates only the rows it is given (momentum, Adam)
    does what it would do in a single process with the whole batch. Each rank puts its rows at its own place
    of a zeroed tensor that has room for all; the sum over ranks then is the concatenation.
    """
    if op not in ("sum", "avg"):
        raise ValueError(
            f"{op} of tf.IndexedSlices is not defined; use sum or avg, or convert to a dense tensor"
        )
    if not distributed():
        return slices
    rank, size = ddl.rank(), ddl.size()
    rows = tf.shape(slices.values, out_type=tf.int64)[0]
    all_rows = allreduce(
        tf.one_hot(rank, size, on_value=rows, off_value=0, dtype=tf.int64), name=f"{name} rows"
    )
    before = tf.reduce_sum(all_rows[:rank])
    after = tf.reduce_sum(all_rows[rank + 1 :])

    def at_own_place(part: Any) -> Any:
        others = tf.zeros([tf.rank(part) - 1, 2], tf.int64)
        padded = tf.pad(part, tf.concat([[[before, after]], others], axis=0))
        return tf.ensure_shape(padded, tf.TensorShape([None]).concatenate(part.shape[1:]))

    indices = allreduce(at_own_place(tf.cast(slices.indices, tf.int64)), name=f"{name} indices")
    values = allreduce(at_own_place(slices.values), name=f"{name} values")
    if op == "avg":
        values = values / tf.cast(size, values.dtype)
    return tf.IndexedSlices(values, tf.cast(indices, slices.indices.dtype), slices.dense_shape)


def _gradient_name(op: Any) -> str:
    # In eager execution operators have no name, and run in the order of the program.
    name = op.get_attr("tensor_name").decode() or getattr(op, "name", op.type).rpartition("/")[2]
    return f"gradient of {name}"


def _linear(op: Any) -> Reduction:
    reduction: Reduction = op.get_attr("op").decode()
    if reduction not in ("sum", "avg"):
        raise NotImplementedError(f"{op.type} with op={reduction!r} has no gradient; sum and avg have one")
    return reduction


@tf.RegisterGradient("AllReduce")  # type: ignore[untyped-decorator]
def _allreduce_gradient(op: Any, grad: Any) -> Any:
    # Each rank's input is in every rank's output, so its gradient is the same reduction of all their
    # gradients.
    return allreduce(grad, _linear(op), _gradient_name(op))


@tf.RegisterGradient("AllReduceN")  # type: ignore[untyped-decorator]
def _allreduce_n_gradient(op: Any, *grads: Any) -> list[Any]:
    # Zeros where this rank's loss does not use an output: another rank's may, and the ranks must call alike.
    dense = [tf.zeros_like(y) if g is None else g for g, y in zip(grads, op.outputs, strict=True)]
    return allreduce_n(dense, _linear(op), _gradient_name(op))


@tf.RegisterGradient("Bcast")  # type: ignore[untyped-decorator]
def _bcast_gradient(op: Any, grad: Any) -> Any:
    total = allreduce(grad, "sum", _gradient_name(op))
    return total if ddl.rank() == op.get_attr("root") else tf.zeros_like(total)


ops.NotDifferentiable("Init")
