"""tf.contrib.rnn: cells, most of which are those of tf.nn.rnn_cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ddl_tf1._facade import getattr_of

BasicLSTMCell = tf.nn.rnn_cell.BasicLSTMCell
BasicRNNCell = tf.nn.rnn_cell.BasicRNNCell
DeviceWrapper = tf.nn.rnn_cell.DeviceWrapper
DropoutWrapper = tf.nn.rnn_cell.DropoutWrapper
GRUCell = tf.nn.rnn_cell.GRUCell
LSTMCell = tf.nn.rnn_cell.LSTMCell
LSTMStateTuple = tf.nn.rnn_cell.LSTMStateTuple
MultiRNNCell = tf.nn.rnn_cell.MultiRNNCell
RNNCell = tf.nn.rnn_cell.RNNCell
ResidualWrapper = tf.nn.rnn_cell.ResidualWrapper
static_bidirectional_rnn = tf.nn.static_bidirectional_rnn
static_rnn = tf.nn.static_rnn
static_state_saving_rnn = tf.nn.static_state_saving_rnn


def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Any,
    initial_states_fw: Sequence[Any] | None = None,
    initial_states_bw: Sequence[Any] | None = None,
    dtype: Any = None,
    sequence_length: Any = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: Any = None,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """Runs layers of cells in both directions, each on the outputs of the layer before it.

    Returns:
        The outputs of both directions of the last layer, side by side; the last states forward, and backward.
    """
    if len(cells_fw) != len(cells_bw):
        raise ValueError(f"{len(cells_fw)} cells forward and {len(cells_bw)} backward: give as many of each")
    states_fw, states_bw = [], []
    outputs = inputs
    with tf.variable_scope(scope or "stack_bidirectional_rnn"):
        for number, (forward, backward) in enumerate(zip(cells_fw, cells_bw, strict=True)):
            with tf.variable_scope(f"cell_{number}"):
                both, (state_fw, state_bw) = tf.nn.bidirectional_dynamic_rnn(
                    forward,
                    backward,
                    outputs,
                    initial_state_fw=initial_states_fw[number] if initial_states_fw else None,
                    initial_state_bw=initial_states_bw[number] if initial_states_bw else None,
                    sequence_length=sequence_length,
                    dtype=dtype,
                    parallel_iterations=parallel_iterations,
                    time_major=time_major,
                )
                outputs = tf.concat(both, 2)
            states_fw.append(state_fw)
            states_bw.append(state_bw)
    return outputs, tuple(states_fw), tuple(states_bw)


_LSTM = "use LSTMCell"
__getattr__ = getattr_of(
    "tensorflow.contrib.rnn",
    {
        "AttentionCellWrapper": "use tf.keras.layers.Attention",
        "CoupledInputForgetGateLSTMCell": _LSTM,
        "EmbeddingWrapper": "use tf.nn.embedding_lookup before the cell",
        "GRUBlockCell": "use GRUCell",
        "GRUBlockCellV2": "use GRUCell",
        "InputProjectionWrapper": "use tf.layers.dense before the cell",
        "LSTMBlockCell": _LSTM,
        "LSTMBlockFusedCell": "use tf.nn.dynamic_rnn with LSTMCell",
        "LayerNormBasicLSTMCell": "use LSTMCell, and tf.contrib.layers.layer_norm on its outputs",
        "OutputProjectionWrapper": "use tf.layers.dense after the cell",
        "TimeFreqLSTMCell": _LSTM,
        "UGRNNCell": "use GRUCell",
    },
)
