"""tf.contrib.layers: layers as functions, initializers and regularizers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.training import moving_averages

from ddl_tf1._facade import getattr_of
from ddl_tf1.contrib.arg_scope import add_arg_scope
from ddl_tf1.contrib.framework import model_variable

# ---- initializers and regularizers


def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = tf.float32,
) -> Any:
    """Returns an initializer whose variance is factor divided by the number that mode names."""
    # The one of tf corrects the deviation for what it truncates; this one never did.
    modes = {"FAN_IN": "fan_in", "FAN_OUT": "fan_out", "FAN_AVG": "fan_avg"}
    if mode not in modes:
        raise ValueError(f"mode {mode!r} must be one of {', '.join(modes)}")

    def initializer(shape: Any, dtype: Any = dtype, partition_info: Any = None) -> Any:
        sizes = [int(size) for size in (shape if partition_info is None else partition_info.full_shape)]
        field = math.prod(sizes[:-2])
        fan_in = field * (sizes[-2] if len(sizes) > 1 else sizes[-1])
        fan_out = field * sizes[-1]
        count = {"FAN_IN": fan_in, "FAN_OUT": fan_out, "FAN_AVG": (fan_in + fan_out) / 2}[mode]
        if uniform:
            limit = math.sqrt(3.0 * factor / count)
            return tf.random_uniform(shape, -limit, limit, dtype, seed=seed)
        return tf.truncated_normal(shape, 0.0, math.sqrt(1.3 * factor / count), dtype, seed=seed)

    return initializer


def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: Any = tf.float32) -> Any:
    """Returns Glorot's initializer: the variance of a layer's outputs is that of its inputs."""
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


xavier_initializer_conv2d = xavier_initializer


def l1_regularizer(scale: float, scope: str | None = None) -> Callable[[Any], Any]:
    """Returns a function: scale times the sum of absolute values."""
    _check_scale(scale)
    return lambda weights: _scaled(scale, tf.reduce_sum(tf.abs(weights)), scope or "l1_regularizer")


def l2_regularizer(scale: float, scope: str | None = None) -> Callable[[Any], Any]:
    """Returns a function: scale times half the sum of squares."""
    _check_scale(scale)
    return lambda weights: _scaled(scale, tf.nn.l2_loss(weights), scope or "l2_regularizer")


def l1_l2_regularizer(
    scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None
) -> Callable[[Any], Any]:
    """Returns the sum of both."""
    return sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope)


def sum_regularizer(regularizer_list: Sequence[Any], scope: str | None = None) -> Callable[[Any], Any]:
    """Returns the sum of regularizers; None in the list counts as none."""
    regularizers = [each for each in regularizer_list if each is not None]

    def total(weights: Any) -> Any:
        with tf.name_scope(scope or "sum_regularizer"):
            parts = [part for part in (each(weights) for each in regularizers) if part is not None]
            return tf.add_n(parts) if parts else None

    return total


def apply_regularization(regularizer: Any, weights_list: Sequence[Any] | None = None) -> Any:
    """Returns the sum of a regularizer over weights, which joins the regularization losses."""
    weights = tf.get_collection(tf.GraphKeys.WEIGHTS) if weights_list is None else weights_list
    parts = [part for part in (regularizer(each) for each in weights) if part is not None]
    total = tf.add_n(parts) if parts else tf.constant(0.0)
    if parts:
        tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, total)
    return total


def _check_scale(scale: Any) -> None:
    if isinstance(scale, int) and not isinstance(scale, bool):
        raise ValueError(f"the scale of a regularizer is a float, such as {float(scale)}, not {scale}")
    if isinstance(scale, float) and scale < 0.0:
        raise ValueError(f"the scale of a regularizer is not negative: {scale}")


def _scaled(scale: float, value: Any, scope: str) -> Any:
    if scale == 0.0:
        return None
    with tf.name_scope(scope):
        return tf.multiply(tf.cast(scale, value.dtype.base_dtype), value)


# ---- layers


def _collections(variables_collections: Any, name: str) -> Any:
    """The collections of one of a layer's variables: a list for all, or by the variable's name."""
    if isinstance(variables_collections, dict):
        return variables_collections.get(name)
    return variables_collections


def _collected(outputs_collections: Any, outputs: Any) -> Any:
    for collection in (
        [outputs_collections] if isinstance(outputs_collections, str) else outputs_collections or ()
    ):
        tf.add_to_collection(collection, outputs)
    return outputs


def _finished(
    outputs: Any,
    normalizer_fn: Any,
    normalizer_params: Any,
    activation_fn: Any,
    add_biases: Callable[[Any], Any],
) -> Any:
    """What comes behind the weights: normalization or biases, and the activation."""
    if normalizer_fn is not None:
        outputs = normalizer_fn(outputs, **(normalizer_params or {}))
    else:
        outputs = add_biases(outputs)
    return outputs if activation_fn is None else activation_fn(outputs)


class _Variables:
    """Makes the variables of one layer."""

    def __init__(self, inputs: Any, collections: Any, trainable: bool) -> None:
        self._dtype, self._collections, self._trainable = inputs.dtype.base_dtype, collections, trainable

    def make(
        self, name: str, shape: Sequence[int], initializer: Any, regularizer: Any = None, trains: bool = True
    ) -> Any:
        """Make or get one of a name."""
        return model_variable(
            name,
            shape,
            self._dtype,
            initializer,
            regularizer,
            collections=_collections(self._collections, name),
            trainable=self._trainable and trains,
        )

    def add_biases(
        self, number: int, initializer: Any, regularizer: Any, data_format: str = "NHWC"
    ) -> Callable[[Any], Any]:
        """Make the function that adds biases."""

        def add(outputs: Any) -> Any:
            if initializer is None:
                return outputs
            biases = self.make("biases", [number], initializer, regularizer)
            return tf.nn.bias_add(outputs, biases, data_format=data_format)

        return add


@add_arg_scope
def fully_connected(
    inputs: Any,
    num_outputs: int,
    activation_fn: Any = tf.nn.relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = xavier_initializer(),  # noqa: B008  as contrib had it: a function
    weights_regularizer: Any = None,
    biases_initializer: Any = tf.zeros_initializer(),  # noqa: B008
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Multiplies the last axis of the inputs with weights."""
    inputs = tf.convert_to_tensor(inputs)
    size = _size(inputs, -1, "fully_connected")
    with tf.variable_scope(scope, "fully_connected", [inputs], reuse=reuse):
        variables = _Variables(inputs, variables_collections, trainable)
        weights = variables.make("weights", [size, num_outputs], weights_initializer, weights_regularizer)
        if inputs.shape.ndims == 2:
            outputs = tf.matmul(inputs, weights)
        else:
            outputs = tf.tensordot(inputs, weights, [[inputs.shape.ndims - 1], [0]])
            outputs.set_shape(inputs.shape[:-1].concatenate(num_outputs))
        add = variables.add_biases(num_outputs, biases_initializer, biases_regularizer)
        outputs = _finished(outputs, normalizer_fn, normalizer_params, activation_fn, add)
        return _collected(outputs_collections, outputs)


linear = functools.partial(fully_connected, activation_fn=None)
relu = functools.partial(fully_connected, activation_fn=tf.nn.relu)
relu6 = functools.partial(fully_connected, activation_fn=tf.nn.relu6)


@add_arg_scope
def conv2d(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
    activation_fn: Any = tf.nn.relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = xavier_initializer(),  # noqa: B008
    weights_regularizer: Any = None,
    biases_initializer: Any = tf.zeros_initializer(),  # noqa: B008
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Convolves images, whose channels are last, or first with data_format "NCHW"."""
    inputs = tf.convert_to_tensor(inputs)
    layout = data_format or "NHWC"
    channels = _size(inputs, layout.index("C"), "conv2d")
    with tf.variable_scope(scope, "Conv", [inputs], reuse=reuse):
        variables = _Variables(inputs, variables_collections, trainable)
        shape = [*_pair(kernel_size), channels, num_outputs]
        weights = variables.make("weights", shape, weights_initializer, weights_regularizer)
        outputs = tf.nn.conv2d(
            inputs,
            weights,
            strides=_along_images(stride, layout),
            padding=padding.upper(),
            data_format=layout,
            dilations=_along_images(rate, layout),
        )
        add = variables.add_biases(num_outputs, biases_initializer, biases_regularizer, layout)
        outputs = _finished(outputs, normalizer_fn, normalizer_params, activation_fn, add)
        return _collected(outputs_collections, outputs)


convolution = convolution2d = conv2d


@add_arg_scope
def conv2d_transpose(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    activation_fn: Any = tf.nn.relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = xavier_initializer(),  # noqa: B008
    weights_regularizer: Any = None,
    biases_initializer: Any = tf.zeros_initializer(),  # noqa: B008
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Enlarges images by the transpose of a convolution."""
    inputs = tf.convert_to_tensor(inputs)
    channels = _size(inputs, data_format.index("C"), "conv2d_transpose")
    with tf.variable_scope(scope, "Conv2d_transpose", [inputs], reuse=reuse):
        variables = _Variables(inputs, variables_collections, trainable)
        kernel, strides = _pair(kernel_size), _pair(stride)
        shape = [*kernel, num_outputs, channels]
        weights = variables.make("weights", shape, weights_initializer, weights_regularizer)
        sizes: list[Any] = []
        dynamic = tf.shape(inputs)
        for at, axis in enumerate(data_format):
            if axis == "N":
                sizes.append(dynamic[at])
            elif axis == "C":
                sizes.append(num_outputs)
            else:
                which = "HW".index(axis)
                size = tf.dimension_value(inputs.shape[at])
                size = dynamic[at] if size is None else size
                wider = max(kernel[which] - strides[which], 0) if padding.upper() == "VALID" else 0
                sizes.append(size * strides[which] + wider)
        outputs = tf.nn.conv2d_transpose(
            inputs,
            weights,
            output_shape=tf.stack(sizes),
            strides=_along_images(stride, data_format),
            padding=padding.upper(),
            data_format=data_format,
        )
        outputs.set_shape([size if isinstance(size, int) else None for size in sizes])
        add = variables.add_biases(num_outputs, biases_initializer, biases_regularizer, data_format)
        outputs = _finished(outputs, normalizer_fn, normalizer_params, activation_fn, add)
        return _collected(outputs_collections, outputs)


convolution2d_transpose = conv2d_transpose


@add_arg_scope
def max_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """Takes the largest value of each window."""
    return _pooled(
        tf.nn.max_pool,
        "MaxPool2D",
        inputs,
        kernel_size,
        stride,
        padding,
        data_format,
        outputs_collections,
        scope,
    )


@add_arg_scope
def avg_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """Takes the mean of each window."""
    return _pooled(
        tf.nn.avg_pool,
        "AvgPool2D",
        inputs,
        kernel_size,
        stride,
        padding,
        data_format,
        outputs_collections,
        scope,
    )


def _pooled(
    pool: Any,
    name: str,
    inputs: Any,
    kernel_size: Any,
    stride: Any,
    padding: str,
    data_format: str,
    outputs_collections: Any,
    scope: Any,
) -> Any:
    with tf.name_scope(scope, name, [inputs]):
        outputs = pool(
            inputs,
            ksize=_along_images(kernel_size, data_format),
            strides=_along_images(stride, data_format),
            padding=padding.upper(),
            data_format=data_format,
        )
        return _collected(outputs_collections, outputs)


@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: Any = None) -> Any:
    """Makes a row of each element of the batch."""
    with tf.name_scope(scope, "Flatten", [inputs]):
        inputs = tf.convert_to_tensor(inputs)
        sizes = [tf.dimension_value(size) for size in inputs.shape[1:]]
        width = -1 if None in sizes else math.prod(sizes)
        rows = tf.shape(inputs)[0] if width != -1 else tf.dimension_value(inputs.shape[0])
        outputs = tf.reshape(inputs, [tf.shape(inputs)[0] if rows is None else rows, width])
        outputs.set_shape([tf.dimension_value(inputs.shape[0]), None if width == -1 else width])
        return _collected(outputs_collections, outputs)


@add_arg_scope
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: Any = None,
    seed: int | None = None,
) -> Any:
    """Sets values to zero in training, and scales the others."""
    with tf.name_scope(scope, "Dropout", [inputs]):
        outputs = _if_training(
            is_training,
            lambda: tf.nn.dropout(inputs, rate=1.0 - keep_prob, noise_shape=noise_shape, seed=seed),
            lambda: tf.identity(inputs),
        )
        return _collected(outputs_collections, outputs)


@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Any = None,
    param_initializers: Any = None,
    param_regularizers: Any = None,
    updates_collections: Any = tf.GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    fused: bool | None = None,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Any:
    """Normalizes each channel over the batch, and by moving averages when it does not train.

    updates_collections: Where the updates of the moving averages go. None: they are made on the way.
    fused: As contrib's fused operator did, moving averages take the variance of a sample, divided by one less
        than the number of values; with False, and for inputs of other than 2 or 4 axes, that of the batch.
    """
    inputs = tf.convert_to_tensor(inputs)
    channel = 1 if data_format.startswith("NC") and inputs.shape.ndims > 2 else inputs.shape.ndims - 1
    number = _size(inputs, channel, "batch_norm")
    axes = [axis for axis in range(inputs.shape.ndims) if axis != channel]
    broadcast = [number if axis == channel else 1 for axis in range(inputs.shape.ndims)]
    initializers, regularizers = param_initializers or {}, param_regularizers or {}
    with tf.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse):
        variables = _Variables(inputs, variables_collections, trainable)

        def parameter(name: str, initial: Any, *, trains: bool) -> Any:
            initializer = initializers.get(name, initial)
            return variables.make(name, [number], initializer, regularizers.get(name), trains)

        beta = parameter("beta", tf.zeros_initializer(), trains=True) if center else None
        gamma = parameter("gamma", tf.ones_initializer(), trains=True) if scale else None
        moving_mean = parameter("moving_mean", tf.zeros_initializer(), trains=False)
        moving_variance = parameter("moving_variance", tf.ones_initializer(), trains=False)

        def updates(mean: Any, variance: Any, rate: Any) -> list[Any]:
            if fused is not False and inputs.shape.ndims in (2, 4):
                count = tf.cast(tf.size(inputs) // number, variance.dtype)
                variance = variance * count / tf.maximum(count - 1, 1)
            return [
                moving_averages.assign_moving_average(moving, value, rate, zero_debias=False)
                for moving, value in ((moving_mean, mean), (moving_variance, variance))
            ]

        def of_batch() -> Any:
            mean, variance = tf.nn.moments(inputs, axes)
            # Within a condition: nobody could run them from outside.
            with tf.control_dependencies([] if updates_collections else updates(mean, variance, decay)):
                return tf.identity(mean), tf.identity(variance)

        def of_training() -> Any:
            return tf.identity(moving_mean), tf.identity(moving_variance)

        mean, variance = _if_training(is_training, of_batch, of_training)
        trains = tf.get_static_value(is_training)
        if updates_collections and (trains is None or trains):
            rate = tf.where(is_training, decay, 1.0) if trains is None else decay
            for update in updates(mean, variance, rate):
                tf.add_to_collection(updates_collections, update)
        outputs = tf.nn.batch_normalization(
            inputs,
            *(
                None if value is None else tf.reshape(value, broadcast)
                for value in (mean, variance, beta, gamma)
            ),
            variance_epsilon=epsilon,
        )
        outputs.set_shape(inputs.shape)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return _collected(outputs_collections, outputs)


@add_arg_scope
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Any:
    """Normalizes each element of the batch by its own mean and variance."""
    inputs = tf.convert_to_tensor(inputs)
    ranks = inputs.shape.ndims
    first = begin_norm_axis % ranks
    shape = [tf.dimension_value(size) for size in inputs.shape[begin_params_axis % ranks :]]
    with tf.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse):
        variables = _Variables(inputs, variables_collections, trainable)
        beta = variables.make("beta", shape, tf.zeros_initializer()) if center else None
        gamma = variables.make("gamma", shape, tf.ones_initializer()) if scale else None
        mean, variance = tf.nn.moments(inputs, list(range(first, ranks)), keepdims=True)
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, variance_epsilon=1e-12)
        outputs.set_shape(inputs.shape)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        return _collected(outputs_collections, outputs)


@add_arg_scope
def softmax(logits: Any, scope: Any = None) -> Any:
    """Is tf.nn.softmax over the last axis."""
    return tf.nn.softmax(logits, name=scope)


@add_arg_scope
def one_hot_encoding(
    labels: Any,
    num_classes: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """Makes a row with a single one of each label."""
    outputs = tf.one_hot(tf.cast(labels, tf.int64), num_classes, on_value, off_value, name=scope)
    return _collected(outputs_collections, outputs)


def embed_sequence(
    ids: Any,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    unique: bool = False,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: Any = None,
) -> Any:
    """Looks up an embedding for each number. unique changes nothing."""
    with tf.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        embeddings = model_variable(
            "embeddings",
            [vocab_size, embed_dim],
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
        )
        return tf.nn.embedding_lookup(embeddings, ids)


def stack(inputs: Any, layer: Any, stack_args: Sequence[Any], **kwargs: Any) -> Any:
    """Puts layers on each other, each with arguments of its own."""
    scope = kwargs.pop("scope", None)
    with tf.variable_scope(scope, "Stack", [inputs]):
        name = scope or _name_of(layer, "stack")
        for number, args in enumerate(stack_args, 1):
            args = args if isinstance(args, list | tuple) else [args]
            inputs = layer(inputs, *args, **{**kwargs, "scope": f"{name}_{number}"})
        return inputs


def repeat(inputs: Any, repetitions: int, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Puts the same layer on itself."""
    scope = kwargs.pop("scope", None)
    with tf.variable_scope(scope, "Repeat", [inputs]):
        name = scope or _name_of(layer, "repeat")
        for number in range(1, repetitions + 1):
            inputs = layer(inputs, *args, **{**kwargs, "scope": f"{name}_{number}"})
        return inputs


def _name_of(layer: Any, default: str) -> str:
    """The name of a layer's function; of a partial, that of the function that it calls."""
    return getattr(getattr(layer, "func", layer), "__name__", default)


def optimize_loss(
    loss: Any,
    global_step: Any,
    learning_rate: Any,
    optimizer: Any,
    gradient_noise_scale: None = None,
    gradient_multipliers: None = None,
    clip_gradients: float | None = None,
    learning_rate_decay_fn: Callable[[Any, Any], Any] | None = None,
    update_ops: Sequence[Any] | None = None,
    variables: Sequence[Any] | None = None,
    name: str | None = None,
) -> Any:
    """Returns the loss, behind one update of the variables by an optimizer.

    Args:
        loss: The loss.
        global_step: The step counter; None takes the graph's.
        learning_rate: A number or tensor; may be None if the optimizer has one.
        optimizer: An optimizer, its class, a function of the learning rate, or "SGD", "Adam", "Adagrad",
            "Momentum", "RMSProp", "Ftrl".
        gradient_noise_scale: Not supported.
        gradient_multipliers: Not supported.
        clip_gradients: The largest norm of all gradients.
        learning_rate_decay_fn: Of learning rate and step.
        update_ops: What runs before; None takes the collection UPDATE_OPS.
        variables: None takes those that train.
        name: The scope.
    """
    if gradient_noise_scale is not None or gradient_multipliers is not None:
        raise ValueError(
            "optimize_loss: gradient_noise_scale and gradient_multipliers are not supported; change the "
            "gradients between the optimizer's compute_gradients and apply_gradients"
        )
    with tf.variable_scope(name, "OptimizeLoss", [loss, global_step]):
        step = tf.train.get_or_create_global_step() if global_step is None else global_step
        rate = learning_rate
        if learning_rate_decay_fn is not None:
            rate = learning_rate_decay_fn(rate, step)
        chosen = _optimizer(optimizer, rate)
        updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS) if update_ops is None else update_ops
        with tf.control_dependencies(updates):
            loss = tf.identity(loss)
        pairs = chosen.compute_gradients(loss, variables or tf.trainable_variables())
        if clip_gradients is not None:
            pairs = [(gradient, each) for gradient, each in pairs if gradient is not None]
            gradients, of = zip(*pairs, strict=True)
            pairs = list(zip(tf.clip_by_global_norm(gradients, clip_gradients)[0], of, strict=True))
        with tf.control_dependencies([chosen.apply_gradients(pairs, global_step=step)]):
            return tf.identity(loss)


OPTIMIZER_CLS_NAMES = {
    "Adagrad": tf.train.AdagradOptimizer,
    "Adam": tf.train.AdamOptimizer,
    "Ftrl": tf.train.FtrlOptimizer,
    "Momentum": functools.partial(tf.train.MomentumOptimizer, momentum=0.9),
    "RMSProp": tf.train.RMSPropOptimizer,
    "SGD": tf.train.GradientDescentOptimizer,
}


def _optimizer(optimizer: Any, rate: Any) -> Any:
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZER_CLS_NAMES:
            raise ValueError(f"optimizer {optimizer!r} must be one of {', '.join(OPTIMIZER_CLS_NAMES)}")
        optimizer = OPTIMIZER_CLS_NAMES[optimizer]
    return optimizer if isinstance(optimizer, tf.train.Optimizer) else optimizer(rate)


def _if_training(is_training: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    value = tf.get_static_value(is_training) if tf.is_tensor(is_training) else is_training
    if value is None:
        return tf.cond(is_training, then, otherwise)
    return then() if value else otherwise()


def _size(inputs: Any, axis: int, layer: str) -> int:
    size = tf.dimension_value(inputs.shape[axis])
    if size is None:
        raise ValueError(f"{layer}: the size of axis {axis} of {inputs.name} is not known: set_shape it")
    return int(size)


def _pair(value: Any) -> list[int]:
    values = [int(each) for each in value] if isinstance(value, list | tuple) else [int(value)] * 2
    return values * 2 if len(values) == 1 else values


def _along_images(value: Any, layout: str) -> list[int]:
    height, width = _pair(value)
    return [{"H": height, "W": width}.get(axis, 1) for axis in layout]


_TF_LAYERS = "use tf.layers"
__getattr__ = getattr_of(
    "tensorflow.contrib.layers",
    {
        "bias_add": "use tf.nn.bias_add and tf.get_variable",
        "bow_encoder": "use embed_sequence and tf.reduce_mean",
        "conv1d": _TF_LAYERS + ".conv1d",
        "conv3d": _TF_LAYERS + ".conv3d",
        "group_norm": "use GroupNormalization of tf_keras.layers",
        "instance_norm": "use GroupNormalization(groups=-1) of tf_keras.layers",
        "separable_conv2d": _TF_LAYERS + ".separable_conv2d",
        "separable_convolution2d": _TF_LAYERS + ".separable_conv2d",
        "summarize_tensors": "use tf.summary.histogram",
        "unit_norm": "use tf.nn.l2_normalize",
        "real_valued_column": "use tf.feature_column.numeric_column",
        "sparse_column_with_hash_bucket": "use tf.feature_column.categorical_column_with_hash_bucket",
        "embedding_column": "use tf.feature_column.embedding_column",
        "safe_embedding_lookup_sparse": "use tf.nn.safe_embedding_lookup_sparse",
    },
)
