"""The optimizers by name."""

from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.params import Params


def make_optimizer(params: Params, rate: Any, *, use_locking: bool = False) -> Any:
    """A TF1 optimizer; only its `apply_gradients` is used, gradients are this program's own business.

    use_locking: several workers may update a variable at the same time, and none of that may get lost.
    """
    locking: dict[str, Any] = {"use_locking": use_locking}
    train = tf.compat.v1.train
    if params.optimizer == "momentum":
        return train.MomentumOptimizer(rate, params.momentum, use_nesterov=True, **locking)
    if params.optimizer == "sgd":
        return train.GradientDescentOptimizer(rate, **locking)
    if params.optimizer == "rmsprop":
        return train.RMSPropOptimizer(
            rate,
            params.rmsprop_decay,
            momentum=params.rmsprop_momentum,
            epsilon=params.rmsprop_epsilon,
            **locking,
        )
    return train.AdamOptimizer(rate, params.adam_beta1, params.adam_beta2, params.adam_epsilon, **locking)
