"""Models for serving: what training has added, DDL's operators among it, stays behind.

A SavedModel with an operator of DDL loads only where DDL's library is. The graph that is served is therefore
never the one that was trained, but a base graph that was made without an optimizer, filled with the values
that training has reached.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

import ddl
from ddl.tensorflow._variables import no_broadcast

_OPERATORS = frozenset(("AllReduce", "AllReduceN", "Bcast", "Init"))
Tensors = Mapping[str, Any]


def export_graph(
    build: Callable[[], tuple[Tensors, Tensors]],
    source: Any,
    folder: str | os.PathLike[str],
    *,
    signature: str = "serving_default",
) -> None:
    """Writes a SavedModel of a TF1 model that was trained with DDL; on rank 0, elsewhere it does nothing.

    The three steps: `build` makes the base graph (inference only) in a graph of its own; the training graph
    is the base graph, made by the same function, with a loss and an optimizer, where DDL adds its operators;
    this function makes the base graph once more, gives its variables the values of training by their names,
    and saves it.

    Args:
        build: Makes inference in the default graph, and returns its inputs and outputs, tensors by name.
        source: The tf.compat.v1.Session that has trained, or the path of a checkpoint of its.
        folder: Of the SavedModel; must not exist.
        signature: Name under which a server offers it.

    Raises:
        FileExistsError: The folder exists.
        ValueError: The base graph has a variable that the source has not, or an operator of DDL.
    """
    if ddl.rank() != 0:
        return
    v1 = tf.compat.v1
    with no_broadcast(), tf.Graph().as_default() as graph:
        inputs, outputs = build()
        variables = graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
        values = _values(source, [variable.op.name for variable in variables])
        definition = v1.saved_model.build_signature_def(
            _described(inputs), _described(outputs), v1.saved_model.PREDICT_METHOD_NAME
        )
        with v1.Session(graph=graph) as session, _new_folder(folder) as unfinished:
            session.run(
                [variable.initializer for variable in variables],
                {variable.initializer.inputs[1]: values[variable.op.name] for variable in variables},
            )
            builder = v1.saved_model.Builder(str(unfinished))
            builder.add_meta_graph_and_variables(
                session,
                [v1.saved_model.SERVING],
                signature_def_map={signature: definition},
                main_op=v1.tables_initializer(),
            )
            builder.save()
            check_servable(unfinished)


def _described(tensors: Tensors) -> dict[str, Any]:
    """What a signature says about tensors."""
    return {
        name: meta_graph_pb2.TensorInfo(
            name=tensor.name, dtype=tensor.dtype.as_datatype_enum, tensor_shape=tensor.shape.as_proto()
        )
        for name, tensor in tensors.items()
    }


def export_model(model: Any, folder: str | os.PathLike[str], *, input_signature: Any = None) -> None:
    """Writes a SavedModel of a Keras 3, tf_keras or tf.Module model; on rank 0, elsewhere it does nothing.

    Args:
        model: A built model. Of a Keras model inference is exported; of a tf.Module its `__call__`.
        folder: Of the SavedModel; must not exist.
        input_signature: List of tf.TensorSpec of a tf.Module's call; a Keras model knows its own, unless it
            is subclassed.

    Raises:
        FileExistsError: The folder exists.
        ValueError: The model has an operator of DDL, say in a tf.function that trains, or lacks a signature.
    """
    if ddl.rank() != 0:
        return
    with no_broadcast(), _new_folder(folder) as unfinished:
        if hasattr(model, "export"):
            options = {} if input_signature is None else {"input_signature": input_signature}
            if _is_tf_keras(model):
                _export_tf_keras(model, unfinished, input_signature)
            else:
                model.export(str(unfinished), verbose=False, **options)
        else:
            if input_signature is None:
                raise ValueError("export_model: a tf.Module needs input_signature, a list of tf.TensorSpec")
            _save_call(model.__call__, model.variables, unfinished, input_signature)
        check_servable(unfinished)


def _is_tf_keras(model: Any) -> bool:
    return any(base.__module__.startswith("tf_keras.") for base in type(model).__mro__)


def _export_tf_keras(model: Any, folder: Path, input_signature: Any) -> None:
    signature = input_signature
    if signature is None:
        if not model.inputs:
            raise ValueError(
                "export_model: a subclassed model needs input_signature, a list of tf.TensorSpec"
            )
        signature = [tf.TensorSpec(t.shape, t.dtype, name=t.name.split(":")[0]) for t in model.inputs]

    def infer(*tensors: Any) -> Any:
        return model(tensors[0] if len(tensors) == 1 else list(tensors), training=False)

    _save_call(infer, model.variables, folder, signature)


def _save_call(call: Callable[..., Any], variables: Any, folder: Path, signature: Any) -> None:
    """Saves nothing but one function and its variables; other functions of the model stay behind."""
    served = tf.Module()
    served.held = list(variables)

    def outputs_by_name(*tensors: Any) -> Any:
        result = call(*tensors)
        if isinstance(result, Mapping):
            return dict(result)
        flat = tf.nest.flatten(result)
        return {f"output_{index}": tensor for index, tensor in enumerate(flat)}

    served.serve = tf.function(outputs_by_name, input_signature=signature, autograph=False)
    tf.saved_model.save(served, str(folder), signatures={"serving_default": served.serve})


def check_servable(folder: str | os.PathLike[str]) -> None:
    """Raises ValueError when a SavedModel has an operator of DDL and so needs DDL's library to load."""
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((Path(folder) / "saved_model.pb").read_bytes())
    operators = [f"{place} ({operator})" for place, operator in _nodes(saved) if operator in _OPERATORS]
    if operators:
        raise ValueError(
            f"{folder} cannot be served without DDL's library: it has the operators "
            f"{', '.join(operators[:5])}; export inference alone, made without an optimizer and outside the "
            "function that trains"
        )


def _nodes(saved: Any) -> Iterator[tuple[str, str]]:
    for meta_graph in saved.meta_graphs:
        for node in meta_graph.graph_def.node:
            yield node.name, node.op
        for function in meta_graph.graph_def.library.function:
            for node in function.node_def:
                yield f"{function.signature.name}/{node.name}", node.op


def _values(source: Any, names: list[str]) -> dict[str, Any]:
    """The values of variables by name, from a session or a checkpoint."""
    if isinstance(source, tf.compat.v1.Session):
        graph = source.graph
        trained = {v.op.name: v for v in graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)}
        origin = "the session"
    else:
        reader = tf.train.load_checkpoint(os.fspath(source))
        trained = dict(reader.get_variable_to_shape_map())
        origin = f"the checkpoint {os.fspath(source)}"
    missing = [name for name in names if name not in trained]
    if missing:
        raise ValueError(
            f"export_graph: {origin} has no {', '.join(missing[:5])}, which the base graph has; make the "
            "training graph by the same function"
        )
    if isinstance(source, tf.compat.v1.Session):
        result: dict[str, Any] = source.run({name: trained[name] for name in names}) if names else {}
        return result
    return {name: reader.get_tensor(name) for name in names}


class _new_folder:
    """Gives a folder beside `folder` that takes its name when all went well; servers watch for that name."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        if self._folder.exists():
            raise FileExistsError(f"{folder} exists; export into a new folder, or remove it first")
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        self._unfinished = self._folder.parent / f".{self._folder.name}.{uuid.uuid4().hex}"

    def __enter__(self) -> Path:
        return self._unfinished

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self._unfinished.rename(self._folder)
        else:
            shutil.rmtree(self._unfinished, ignore_errors=True)
