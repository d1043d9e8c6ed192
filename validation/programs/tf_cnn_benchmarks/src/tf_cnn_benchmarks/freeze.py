"""--freeze_when_forward_only: a graph whose variables have become constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.datasets import Batch

v1 = tf.compat.v1


def frozen_session(
    session: Any, config: Any, measures: Any, batches: Sequence[Batch]
) -> tuple[Any, Any, list[Batch]]:
    """A session of the frozen graph, and in it what `measures` and `batches` are in the session given.

    Synthetic images, which are local variables, stay variables: as constants they would let TensorFlow
    compute the whole model once and for all.
    """
    graph = session.graph
    with graph.as_default():
        local_variables = v1.local_variables()
    starts = [v.initializer.name for v in local_variables]
    tensors = [[b.images, b.labels, b.start_step, *b.feed] for b in batches]
    outputs = [measures.op.name, *starts]
    outputs += [t.op.name for group in tensors for t in group if t is not None]
    outputs += [b.initializer.name for b in batches if b.initializer is not None]
    definition = v1.graph_util.convert_variables_to_constants(
        session,
        graph.as_graph_def(),
        outputs,
        variable_names_blacklist=[v.op.name for v in local_variables],
    )
    frozen = tf.Graph()
    with frozen.as_default():
        tf.import_graph_def(definition, name="")

    def same(element: Any) -> Any:
        return None if element is None else frozen.as_graph_element(element.name)

    new = v1.Session(graph=frozen, config=config)
    new.run([frozen.get_operation_by_name(name) for name in starts])
    moved = [
        Batch(
            same(b.images),
            same(b.labels),
            same(b.initializer),
            same(b.start_step),
            {same(place): value for place, value in b.feed.items()},
        )
        for b in batches
    ]
    return new, same(measures), moved
