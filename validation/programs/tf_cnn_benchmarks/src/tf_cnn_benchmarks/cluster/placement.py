"""Which parameter server keeps which variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.cluster.spec import PS, task_device

FIRST = f"{task_device(PS, 0)}/cpu:0"
"""Where what there is once is kept: the step count and what the tasks agree by."""


class Placement:
    """Gives each new variable to the server that has the fewest bytes.

    All workers make the same variables in the same order, and so find each where the others do.
    """

    def __init__(self, servers: int) -> None:
        self._bytes = [0] * servers

    def on(self, device: str) -> Callable[[Any], str]:
        """A device function: variables go to the servers, everything else to `device`."""
        default = tf.DeviceSpec.from_string(device)

        def place(operator: Any) -> str:
            if operator.type == "VarHandleOp":
                return self._server(operator)
            if len(operator.inputs) and operator.inputs[0].dtype == tf.resource:
                # Whatever reads or changes a variable does it where the variable is.
                return str(operator.inputs[0].device)
            requested = tf.DeviceSpec.from_string(operator.device or "")
            return str(default.make_merged_spec(requested).to_string())

        return place

    def _server(self, operator: Any) -> str:
        shape = tf.TensorShape(operator.get_attr("shape"))
        size = int(shape.num_elements() or 0) * int(tf.as_dtype(operator.get_attr("dtype")).size)
        least = self._bytes.index(min(self._bytes))
        self._bytes[least] += size
        return f"{task_device(PS, least)}/cpu:0"
