"""The optimizers by name."""

from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.params import Params


def make_optimizer(params: Params, rate: Any) -> Any:
    """A TF1 optimizer; only its `apply_gradients` is used, gradients are this program's own business."""
    train = tf.compat.v1.train
    if params.optimizer == "momentum":
        return train.MomentumOptimizer(rate, params.momentum)
    if params.optimizer == "sgd":
        return train.GradientDescentOptimizer(rate)
    if params.optimizer == "rmsprop":
        return train.RMSPropOptimizer(
            rate, params.rmsprop_decay, momentum=params.rmsprop_momentum, epsilon=params.rmsprop_epsilon
        )
    return train.AdamOptimizer(rate, params.adam_beta1, params.adam_beta2, params.adam_epsilon)
