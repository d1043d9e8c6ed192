"""tf.contrib.slim: layers, arg_scope, losses, and slim.learning's training loop in its simple form."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from ddl_tf1._facade import Facade, getattr_of
from ddl_tf1.contrib import losses, metrics
from ddl_tf1.contrib.arg_scope import add_arg_scope, arg_scope, current_arg_scope, has_arg_scope
from ddl_tf1.contrib.framework import (
    assign_from_checkpoint_fn,
    assign_from_values_fn,
    create_global_step,
    filter_variables,
    get_global_step,
    get_local_variables,
    get_model_variables,
    get_or_create_global_step,
    get_trainable_variables,
    get_unique_variable,
    get_variables,
    get_variables_by_name,
    get_variables_by_suffix,
    get_variables_to_restore,
    local_variable,
    model_variable,
    variable,
)
from ddl_tf1.contrib.layers import (
    avg_pool2d,
    batch_norm,
    conv2d,
    conv2d_transpose,
    convolution,
    convolution2d,
    convolution2d_transpose,
    dropout,
    embed_sequence,
    flatten,
    fully_connected,
    l1_l2_regularizer,
    l1_regularizer,
    l2_regularizer,
    layer_norm,
    max_pool2d,
    one_hot_encoding,
    repeat,
    softmax,
    stack,
    variance_scaling_initializer,
    xavier_initializer,
)

__all__ = [
    "add_arg_scope",
    "arg_scope",
    "assign_from_checkpoint_fn",
    "assign_from_values_fn",
    "avg_pool2d",
    "batch_norm",
    "conv2d",
    "conv2d_transpose",
    "convolution",
    "convolution2d",
    "convolution2d_transpose",
    "create_global_step",
    "current_arg_scope",
    "dropout",
    "embed_sequence",
    "filter_variables",
    "flatten",
    "fully_connected",
    "get_global_step",
    "get_local_variables",
    "get_model_variables",
    "get_or_create_global_step",
    "get_trainable_variables",
    "get_unique_variable",
    "get_variables",
    "get_variables_by_name",
    "get_variables_by_suffix",
    "get_variables_to_restore",
    "has_arg_scope",
    "l1_l2_regularizer",
    "l1_regularizer",
    "l2_regularizer",
    "layer_norm",
    "learning",
    "local_variable",
    "losses",
    "max_pool2d",
    "metrics",
    "model_variable",
    "one_hot_encoding",
    "repeat",
    "softmax",
    "stack",
    "variable",
    "variance_scaling_initializer",
    "xavier_initializer",
]


def _create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = None,
    update_ops: Any = None,
    variables_to_train: Any = None,
    clip_gradient_norm: float = 0,
    summarize_gradients: bool = False,
    transform_grads_fn: Callable[[Any], Any] | None = None,
) -> Any:
    """Returns the loss, behind one update of the variables."""
    step = tf.train.get_or_create_global_step() if global_step is None else global_step
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS) if update_ops is None else update_ops
    with tf.control_dependencies(updates):
        total_loss = tf.identity(total_loss)
    pairs = optimizer.compute_gradients(total_loss, variables_to_train)
    if transform_grads_fn is not None:
        pairs = transform_grads_fn(pairs)
    if clip_gradient_norm > 0:
        pairs = [
            (gradient if gradient is None else tf.clip_by_norm(gradient, clip_gradient_norm), each)
            for gradient, each in pairs
        ]
    if summarize_gradients:
        for gradient, each in pairs:
            if gradient is not None:
                tf.summary.histogram(f"{each.op.name}_gradient", gradient)
    with tf.control_dependencies([optimizer.apply_gradients(pairs, global_step=step)]):
        return tf.identity(total_loss, name="train_op")


def _train(
    train_op: Any,
    logdir: str | None,
    number_of_steps: int | None = None,
    master: str = "",
    init_fn: Callable[[Any], None] | None = None,
    log_every_n_steps: int = 1,
    save_summaries_secs: int = 600,
    save_interval_secs: int = 600,
    session_config: Any = None,
    saver: Any = None,
    global_step: Any = None,
) -> float:
    """Trains until the step counter is number_of_steps; returns the last loss.

    Rank 0 writes checkpoints and summaries to logdir. The other ranks only read the checkpoint there.
    """
    step = tf.train.get_or_create_global_step() if global_step is None else global_step
    with tf.control_dependencies([train_op]):
        step_after = tf.identity(step)
    saver = tf.train.Saver() if saver is None else saver
    if logdir is not None and not _is_rank_0():
        # A supervisor that has a folder writes to it.
        init_fn = _restore_or(init_fn, saver, logdir)
        logdir = None
    supervisor = tf.train.Supervisor(
        logdir=logdir,
        init_fn=init_fn,
        saver=saver,
        global_step=step,
        save_summaries_secs=save_summaries_secs,
        # Its thread may end a save of an earlier step behind the last one, whose file is then not the latest.
        save_model_secs=0,
    )
    due = time.monotonic() if logdir is not None and save_interval_secs else math.inf
    loss = float("nan")
    with supervisor.managed_session(master, config=session_config) as session:
        number = int(session.run(step))
        while not supervisor.should_stop() and (number_of_steps is None or number < number_of_steps):
            if time.monotonic() >= due:
                supervisor.saver.save(session, supervisor.save_path, global_step=step)
                due = time.monotonic() + save_interval_secs
            loss, number = session.run([train_op, step_after])
            if log_every_n_steps and number % log_every_n_steps == 0:
                tf.logging.info("global step %d: loss = %.4f", number, loss)
        if logdir is not None:
            supervisor.saver.save(session, supervisor.save_path, global_step=step)
    return float(loss)


def _is_rank_0() -> bool:
    """Whether this process has rank 0 in DDL and in Horovod, as far as the script uses them."""
    libraries = [sys.modules.get(name) for name in ("ddl", "horovod.tensorflow")]
    return all(each.rank() == 0 for each in libraries if each is not None and each.is_initialized())


def _restore_or(init_fn: Callable[[Any], None] | None, saver: Any, folder: str) -> Callable[[Any], None]:
    def restore(session: Any) -> None:
        checkpoint = tf.train.latest_checkpoint(folder)
        if checkpoint is not None:
            saver.restore(session, checkpoint)
        elif init_fn is not None:
            init_fn(session)

    return restore


learning = Facade(
    "tensorflow.contrib.slim.learning",
    [],
    {"create_train_op": lambda: _create_train_op, "train": lambda: _train},
    {
        "add_gradients_summaries": "pass summarize_gradients=True to create_train_op",
        "clip_gradient_norms": "pass clip_gradient_norm to create_train_op",
        "multiply_gradients": "pass transform_grads_fn to create_train_op",
        "train_step": "run the train_op in tf.train.MonitoredTrainingSession",
    },
)
_MODELS = "take the nets from the repository of models that your script is from, or tf.keras.applications"
__getattr__ = getattr_of(
    "tensorflow.contrib.slim",
    {
        "data": "read the data with tf.data",
        "dataset": "read the data with tf.data",
        "dataset_data_provider": "read the data with tf.data",
        "evaluation": "restore the checkpoint and run the metrics in tf.train.MonitoredSession",
        "nets": _MODELS,
        "parallel_reader": "read the data with tf.data",
        "queues": "use tf.train.Coordinator and tf.train.start_queue_runners",
        "tfexample_decoder": "use tf.parse_single_example",
        "separable_conv2d": "use tf.layers.separable_conv2d",
    },
)
