"""tf.contrib.metrics: the streaming metrics, which are those of tf.metrics with the predictions first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from ddl_tf1._facade import getattr_of


def accuracy(predictions: Any, labels: Any, weights: Any = None, name: str | None = None) -> Any:
    """Returns the part of the predictions of a batch that equal the labels."""
    with tf.name_scope(name or "accuracy"):
        right = tf.cast(tf.equal(predictions, labels), tf.float32)
        if weights is None:
            return tf.reduce_mean(right)
        weights = tf.cast(weights, tf.float32) * tf.ones_like(right)
        return tf.reduce_sum(right * weights) / tf.reduce_sum(weights)


def _streaming(name: str) -> Callable[..., Any]:
    of_tf = getattr(tf.metrics, name)

    def metric(predictions: Any, labels: Any, *args: Any, **kwargs: Any) -> Any:
        return of_tf(labels, predictions, *args, **kwargs)

    metric.__name__ = f"streaming_{name}"
    metric.__doc__ = f"Is tf.metrics.{name}, with the predictions first."
    return metric


streaming_accuracy = _streaming("accuracy")
streaming_auc = _streaming("auc")
streaming_false_negatives = _streaming("false_negatives")
streaming_false_positives = _streaming("false_positives")
streaming_mean_absolute_error = _streaming("mean_absolute_error")
streaming_mean_iou = _streaming("mean_iou")
streaming_mean_squared_error = _streaming("mean_squared_error")
streaming_precision = _streaming("precision")
streaming_recall = _streaming("recall")
streaming_root_mean_squared_error = _streaming("root_mean_squared_error")
streaming_true_positives = _streaming("true_positives")
streaming_mean = tf.metrics.mean
confusion_matrix = tf.math.confusion_matrix


def aggregate_metrics(*pairs: Any) -> tuple[list[Any], list[Any]]:
    """Returns the values and the update operators of metrics."""
    values, updates = zip(*pairs, strict=True)
    return list(values), list(updates)


def aggregate_metric_map(metrics: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the values and the update operators of named metrics."""
    return (
        {name: value for name, (value, _) in metrics.items()},
        {name: update for name, (_, update) in metrics.items()},
    )


__getattr__ = getattr_of("tensorflow.contrib.metrics", {})
