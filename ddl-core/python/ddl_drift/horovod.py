"""Has Horovod's ranks compared: what its optimizers and tapes call. `ddl` is not imported, as it would
average too.
"""

from __future__ import annotations

import collections
import functools
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

import ddl_drift


class _Ranks:
    """The ranks of a process set."""

    exclusion = "ddl_drift.exclude"
    same_figures = ""

    def __init__(self, process_set: Any) -> None:
        self._process_set = process_set
        self._root = process_set.ranks[0] if process_set.ranks else 0
        self.rank, self.size = process_set.rank(), process_set.size()

    def error(self, text: str) -> Exception:
        """See ddl_drift.Ranks."""
        return RuntimeError(text)


class _TorchRanks(_Ranks):
    """Tensors in the host's memory, of which Horovod's thread takes care in the background."""

    same_figures = "average the figure that a scheduler decides by, by hvd.allreduce, before it sees it"

    def start_maximum(self, values: np.ndarray[Any, Any], name: str) -> Callable[[], np.ndarray[Any, Any]]:
        """See ddl_drift.Ranks."""
        import torch
        from horovod.torch import mpi_ops

        tensor = torch.from_numpy(values)
        handle = mpi_ops.allreduce_async_(tensor, name=name, op=mpi_ops.Max, process_set=self._process_set)
        return lambda: np.asarray(mpi_ops.synchronize(handle).numpy())

    def gather(self, values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        """See ddl_drift.Ranks."""
        import torch
        from horovod.torch import mpi_ops

        tensor = torch.from_numpy(values[None])
        return np.asarray(mpi_ops.allgather(tensor, name=name, process_set=self._process_set).numpy())

    def broadcast(self, values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        """See ddl_drift.Ranks."""
        import torch
        from horovod.torch import mpi_ops

        tensor = torch.from_numpy(values.copy())
        mpi_ops.broadcast_(tensor, self._root, name=name, process_set=self._process_set)
        return np.asarray(tensor.numpy())


class _TensorFlowRanks(_Ranks):
    """Tensors in the host's memory, of eager execution or of a TF1 session of their own."""

    same_figures = (
        "callbacks that set it by a rank's own loss need Horovod's MetricAverageCallback() before them"
    )

    def _on_host(self, kind: str, values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        import tensorflow as tf

        with tf.init_scope():
            if not tf.executing_eagerly():
                return _in_session(kind, str(values.dtype), values.ndim)(values)
            with tf.device("/cpu:0"):
                result = _call(kind, tf.constant(values), name, self._root, self._process_set)
                return np.asarray(result.numpy())

    def start_maximum(self, values: np.ndarray[Any, Any], name: str) -> Callable[[], np.ndarray[Any, Any]]:
        """See ddl_drift.Ranks."""
        highest = self._on_host("allreduce", values, name)
        return lambda: highest

    def gather(self, values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        """See ddl_drift.Ranks."""
        return self._on_host("allgather", values[None], name)

    def broadcast(self, values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        """See ddl_drift.Ranks."""
        return self._on_host("broadcast", values, name)


def _call(kind: str, tensor: Any, name: str, root: int, process_set: Any) -> Any:
    import horovod.tensorflow as hvd

    if kind == "allreduce":
        return hvd.allreduce(tensor, op=hvd.Max, name=name, process_set=process_set)
    if kind == "allgather":
        return hvd.allgather(tensor, name=name, process_set=process_set)
    return hvd.broadcast(tensor, root, name=name, process_set=process_set)


@functools.cache
def _in_session(kind: str, dtype: str, ndim: int) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """A call of all ranks in TF1, where an eager context would take GPUs of other ranks. One at a time."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    from ddl_drift import sessions

    with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
        placeholder = tf.compat.v1.placeholder(dtype, [None] * ndim)
        result = _call(kind, placeholder, f"drift_{kind}_{dtype}_{ndim}", 0, hvd.global_process_set)
    session = tf.compat.v1.Session(graph=graph, config=tf.compat.v1.ConfigProto(device_count={"GPU": 0}))

    def call(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with sessions.internal():
            return np.asarray(session.run(result, {placeholder: values}))

    return call


def _takes_part(process_set: Any) -> bool:
    return bool(process_set.included()) and process_set.size() > 1


def _ddl_compares() -> bool:
    """Whether `import ddl` has TensorFlow's optimizers compared."""
    return "ddl.tensorflow._drift" in sys.modules


def after_step(optimizer: Any) -> None:
    """Called when an optimizer of PyTorch has made a step. Collective.

    Raises:
        RuntimeError: The ranks have drifted apart.
    """
    from ddl_drift.torch import Tensors, learning_rate

    if not _takes_part(optimizer.process_set):
        return
    ranks = _TorchRanks(optimizer.process_set)
    if not ddl_drift.enabled(ranks):
        return
    watch = ddl_drift.make_watch(optimizer, ranks, learning_rate)
    parameters = [
        parameter
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.requires_grad
    ]
    if watch.takes([id(parameter) for parameter in parameters]):
        names = optimizer._parameter_names
        watch.watch(Tensors([(names.get(parameter, "parameter"), parameter) for parameter in parameters]))
    watch.updated()


def after_averaging(owner: Any, variables: Sequence[Any], process_set: Any) -> None:
    """Called when an optimizer or a tape of TensorFlow has averaged, or will in a function. Collective.

    Args:
        owner: The optimizer; None for a tape.
        variables: Those of the gradients.
        process_set: Its ranks take part.

    Raises:
        RuntimeError: The ranks have drifted apart.
    """
    import ddl_drift.tensorflow

    if not _ddl_compares() and _takes_part(process_set):
        ddl_drift.tensorflow.hook_calls()
        ddl_drift.tensorflow.after_averaging(
            variables, _TensorFlowRanks(process_set), owner, ddl_drift.keras_learning_rate
        )


def before_join(eager: bool = True) -> None:
    """Called when a rank joins, which may have made fewer updates than others. All go on together.

    Args:
        eager: It joins now, and not by an operator of a graph.
    """
    if eager:
        ddl_drift.restart()
    else:
        import horovod.tensorflow as hvd

        ddl_drift.stop(_TensorFlowRanks(hvd.global_process_set), "hvd.join in a graph")


def exclude_local(references: Collection[Any]) -> None:
    """Called with the references of variables that Horovod does not average: they may differ."""
    ddl_drift.exclude([reference.deref() for reference in references])


def before_training(model: Any) -> None:
    """Called where a callback gives all ranks the same weights. Warns if no gradient will be averaged."""
    optimizer = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    own_step = not type(model).train_step.__module__.startswith(("keras.", "tf_keras."))
    if not (_ddl_compares() or own_step or hasattr(inner, "process_set")):
        _warn(f"the optimizer {type(inner).__name__}, which model.compile was given,")


def _warn(optimizer: str) -> None:
    import horovod.tensorflow as hvd

    ranks = _TensorFlowRanks(hvd.global_process_set)
    if ranks.size > 1 and ranks.rank == 0 and ddl_drift.enabled(ranks):
        sys.stderr.write(
            f"[WARN] {optimizer} averages no gradients: each of the {ranks.size} ranks will train a model of "
            "its own; wrap it by hvd.DistributedOptimizer\n"
        )


#: On a graph: the updates in which no gradient is averaged, and whether one of them has run.
_UNAVERAGED = "_horovod_unaveraged_updates"
_LOOKED_AT = "_horovod_unaveraged_looked_at"


def after_graph_update(operator: Any, pairs: Sequence[tuple[Any, Any]]) -> None:
    """Called when an update was put into a graph of TF1.

    Args:
        operator: It makes the update.
        pairs: Gradients and variables. Those are compared whose gradient Horovod averages on all ranks.
    """
    import tensorflow as tf

    from ddl_drift import sessions

    operator = getattr(operator, "op", operator)
    if _ddl_compares() or tf.executing_eagerly() or tf.inside_function() or not hasattr(operator, "graph"):
        return
    sets = [(variable, _process_set(gradient)) for gradient, variable in pairs if gradient is not None]
    averaged = [variable for variable, number in sets if number == 0]
    if averaged:
        sessions.note(sessions.NotedUpdate(operator, averaged))
    elif all(number is None for _, number in sets):
        sessions.note(sessions.NotedUpdate(operator, [variable for variable, _ in sets]), _UNAVERAGED)


_AVERAGING = ("HorovodAllreduce", "HorovodGroupedAllreduce", "HorovodAllgather", "HorovodReducescatter")


def _process_set(gradient: Any) -> int | None:
    """The number of the process set that averages a gradient, 0 for all ranks; None where none does.

    Looks at the nearest operators first, also in the branches of control flow v2.
    """
    parts = [gradient.values] if hasattr(gradient, "values") else [gradient]
    queue = collections.deque(part.op for part in parts)
    seen: dict[tuple[int, str], Any] = {}
    while queue:
        operator = queue.popleft()
        key = (id(operator.graph), operator.name)
        if key in seen:
            continue
        seen[key] = operator  # and keeps its graph
        if operator.type in _AVERAGING:
            return int(operator.get_attr("process_set_id"))
        queue.extend(tensor.op for branch in _branches(operator) for tensor in branch.outputs)
        queue.extend(tensor.op for tensor in operator.inputs)
    return None


def _branches(operator: Any) -> Sequence[Any]:
    """The graphs of the branches of a condition."""
    from tensorflow.python.ops import cond_v2

    conditions = ("If", "StatelessIf", "Case", "StatelessCase")
    return list(cond_v2.get_func_graphs(operator)) if operator.type in conditions else []


def _warn_of_unaveraged(graph: Any, operators: list[Any]) -> None:
    """Warns, once, of an update without averaging in a graph that broadcasts and averages nothing else."""
    from ddl_drift import sessions

    if getattr(graph, _LOOKED_AT, False) or not sessions.updates_in_run(graph, operators, _UNAVERAGED):
        return
    setattr(graph, _LOOKED_AT, True)
    types = {operator.type for operator in graph.get_operations()}
    if any(each.startswith("HorovodBroadcast") for each in types) and not types.intersection(_AVERAGING):
        _warn("the optimizer of this session")


@functools.cache
def compare_sessions() -> None:
    """Has the weights compared behind the training steps of TF1's sessions; once. TensorFlow is imported."""
    import tensorflow as tf

    from ddl_drift import sessions

    optimizer = tf.compat.v1.train.Optimizer
    apply = optimizer.apply_gradients

    @functools.wraps(apply)
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        result = apply(self, pairs, *args, **kwargs)
        after_graph_update(result, pairs)
        return result

    optimizer.apply_gradients = apply_gradients

    def after(session: Any, operators: list[Any]) -> None:
        if _ddl_compares():
            return
        _warn_of_unaveraged(session.graph, operators)
        if sessions.updates_in_run(session.graph, operators):
            import horovod.tensorflow as hvd

            if hvd.is_initialized():
                sessions.compare(session, operators, _TensorFlowRanks(hvd.global_process_set))

    sessions.hook_runs(lambda session, operators: None, after)
