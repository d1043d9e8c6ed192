"""One copy of the model on one device: loss, accuracy and gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.layers import NETWORK, Layers
from tf_cnn_benchmarks.models import Model
from tf_cnn_benchmarks.params import Params

v1 = tf.compat.v1

BATCH_NORM_VARIABLES = frozenset({"gamma", "beta", "moving_mean", "moving_variance"})


@dataclass
class Tower:
    """Graph tensors of one device. Losses are means, `top1` and `top5` counts, over its own `counted` images.

    `loss` is the one that is reported. `gradients` holds (gradient, variable) of every trainable variable, in
    the variable's type, of the total loss; it is empty outside training. `update_ops` belong to the training
    step.
    """

    loss: Any
    top1: Any
    top5: Any
    counted: Any
    gradients: list[tuple[Any, Any]]
    update_ops: list[Any]


def build_tower(
    params: Params,
    model: Model,
    images: Any,
    labels: Any,
    *,
    classes: int,
    data_format: str,
    training: bool,
    scale: Any = 1.0,
) -> Tower:
    """The model over images (N x H x W x C, float32) and labels (N, int32; -1 does not count).

    Variables come from the current variable scope and device; everything else is on the current device.
    Gradients are computed of the loss times `scale`, which is divided out again.
    """
    getter = _float16_variables if params.use_fp16 and params.fp16_vars else None
    updates: list[Any] = []
    variables: list[Any] = []

    def compute(images: Any, labels: Any) -> list[Any]:
        net = Layers(
            training=training,
            data_format=data_format,
            dtype=tf.float16 if params.use_fp16 else tf.float32,
            seed=params.tf_random_seed,
        )
        with v1.variable_scope(NETWORK, custom_getter=getter):
            x = tf.cast(images, net.dtype)
            if data_format == "NCHW":
                x = tf.transpose(x, [0, 3, 1, 2])
            logits = net.classifier(model.build(net, x), classes)
        updates.extend(net.update_ops)
        variables.extend(net.trainable)
        counts = labels >= 0
        counted = tf.reduce_sum(tf.cast(counts, tf.float32))
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.maximum(labels, 0), logits=logits)
        data_loss = tf.reduce_sum(tf.where(counts, each, tf.zeros_like(each))) / tf.maximum(counted, 1.0)
        loss = data_loss
        # A forward pass is not charged with reading all variables once more.
        if params.loss_type_to_report == "total_loss" and not params.forward_only:
            loss += params.weight_decay * _half_of_squares(
                list(filter(_decays, variables)), at_once=params.single_l2_loss_op
            )
        top1, top5 = (_hits(logits, labels, k) for k in (1, 5))
        outputs = [loss, top1, top5, counted]
        if training:
            outputs += _gradients(data_loss, variables, params.weight_decay, scale)
        return outputs

    outputs = _compile(compute, images, labels, updates) if params.xla_compile else compute(images, labels)
    pairs = list(zip(outputs[4:], variables, strict=True)) if training else []
    loss, top1, top5, counted = outputs[:4]
    return Tower(loss, top1, top5, counted, gradients=pairs, update_ops=updates)


def _float16_variables(getter: Any, name: str, *arguments: Any, **options: Any) -> Any:
    """Weights and biases in float16; batch normalisation's kernel takes float32 only."""
    if name.rpartition("/")[2] not in BATCH_NORM_VARIABLES:
        options["dtype"] = tf.float16
    return getter(name, *arguments, **options)


def _half_of_squares(variables: list[Any], *, at_once: bool) -> Any:
    """Half the sum of all squares, added up in float32."""
    values = [tf.cast(variable, tf.float32) for variable in variables]
    if at_once:
        return tf.nn.l2_loss(tf.concat([tf.reshape(value, [-1]) for value in values], 0))
    return tf.add_n([tf.nn.l2_loss(value) for value in values])


def _hits(logits: Any, labels: Any, k: int) -> Any:
    """How many labels are among the k likeliest classes (a -1 never is)."""
    hits = tf.nn.in_top_k(targets=tf.maximum(labels, 0), predictions=logits, k=k)
    return tf.reduce_sum(tf.cast(tf.logical_and(hits, labels >= 0), tf.float32))


def _gradients(data_loss: Any, variables: list[Any], weight_decay: float, scale: Any) -> list[Any]:
    """The gradients of the data's loss plus weight decay.

    The decay's part, known in closed form, is added here and not scaled: only what passes through float16
    needs the scale.
    """
    scaled = isinstance(scale, tf.Tensor) or scale != 1.0
    gradients = tf.gradients(data_loss * scale if scaled else data_loss, variables)
    missing = [v.name for v, g in zip(variables, gradients, strict=True) if g is None]
    if missing:
        raise RuntimeError(f"the loss does not depend on {', '.join(missing)}")
    if scaled:
        gradients = [tf.cast(tf.cast(g, tf.float32) / scale, g.dtype) for g in gradients]
    if not weight_decay:
        return list(gradients)
    pairs = zip(gradients, variables, strict=True)
    return [g + weight_decay * v if _decays(v) else g for g, v in pairs]


def _decays(variable: Any) -> bool:
    """What batch normalisation scales by has no reason to be small."""
    return str(variable.op.name).rpartition("/")[2] not in BATCH_NORM_VARIABLES


def _compile(compute: Any, images: Any, labels: Any, updates: list[Any]) -> list[Any]:
    """`compute` as one XLA computation; the updates are part of it, they need no running afterwards."""

    def whole(images: Any, labels: Any) -> list[Any]:
        outputs = compute(images, labels)
        with tf.control_dependencies(updates):
            outputs = [tf.identity(outputs[0]), *outputs[1:]]
        return outputs

    outputs = list(v1.xla.experimental.compile(whole, [images, labels]))
    updates.clear()
    return outputs
