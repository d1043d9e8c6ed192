"""tf.contrib.losses, which are slim.losses: those of tf.losses, with the predictions first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from ddl_tf1._facade import getattr_of

add_loss = tf.losses.add_loss
compute_weighted_loss = tf.losses.compute_weighted_loss
get_losses = tf.losses.get_losses
get_regularization_losses = tf.losses.get_regularization_losses
get_total_loss = tf.losses.get_total_loss


def _predictions_first(name: str, *, of_logits: bool = False) -> Callable[..., Any]:
    of_tf = getattr(tf.losses, name)

    def loss(predictions: Any, labels: Any, weights: Any = 1.0, **kwargs: Any) -> Any:
        return of_tf(labels, predictions, weights=weights, **kwargs)

    def loss_of_logits(logits: Any, onehot_labels: Any, weights: Any = 1.0, **kwargs: Any) -> Any:
        return of_tf(onehot_labels, logits, weights=weights, **kwargs)

    result = loss_of_logits if of_logits else loss
    result.__name__ = name
    result.__doc__ = f"Is tf.losses.{name}, with the predictions first."
    return result


absolute_difference = _predictions_first("absolute_difference")
log_loss = _predictions_first("log_loss")
mean_squared_error = _predictions_first("mean_squared_error")
softmax_cross_entropy = _predictions_first("softmax_cross_entropy", of_logits=True)


def sigmoid_cross_entropy(logits: Any, multi_class_labels: Any, weights: Any = 1.0, **kwargs: Any) -> Any:
    """Is tf.losses.sigmoid_cross_entropy, with the logits first."""
    return tf.losses.sigmoid_cross_entropy(multi_class_labels, logits, weights=weights, **kwargs)


def sparse_softmax_cross_entropy(logits: Any, labels: Any, weights: Any = 1.0, **kwargs: Any) -> Any:
    """Is tf.losses.sparse_softmax_cross_entropy, with the logits first."""
    return tf.losses.sparse_softmax_cross_entropy(labels, logits, weights=weights, **kwargs)


def hinge_loss(logits: Any, labels: Any = None, **kwargs: Any) -> Any:
    """Is tf.losses.hinge_loss, with the logits first."""
    return tf.losses.hinge_loss(labels, logits, **kwargs)


def cosine_distance(predictions: Any, labels: Any, axis: int | None = None, **kwargs: Any) -> Any:
    """Is tf.losses.cosine_distance, with the predictions first."""
    return tf.losses.cosine_distance(labels, predictions, axis=axis, **kwargs)


__getattr__ = getattr_of("tensorflow.contrib.losses", {"metric_learning": "write the loss yourself"})
