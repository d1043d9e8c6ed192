"""The vocabulary models are written in: thin functions over TensorFlow's graph operators.

Plain `tf.nn` operators and resource variables, no layer objects: nothing runs in a step but what the model
says, and the same code makes the graph for training, evaluation and XLA.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1

NETWORK = "cg"
"""The scope of a network's variables."""
BATCH_NORM_DECAY = 0.9
BATCH_NORM_EPSILON = 1e-5


class Layers:
    """Builds one copy of a model.

    `data_format` is NHWC or NCHW, `dtype` the type computed in (variables are float32), `seed` makes the
    initial values: each variable's depend on the seed and its own name alone, so that every copy of a model,
    on any device and under any --variable_update, starts from the same ones.
    `trainable` lists the variables that get gradients, in the order in which they were made (or found again).
    `update_ops` collects the batch-normalisation averages' updates, to be run with the training step.
    Variables have the names that users know from checkpoints, such as conv0/conv2d/kernel, conv0/biases,
    batchnorm0/gamma and affine0/weights. Layers of a kind are numbered through the whole network.
    """

    def __init__(self, *, training: bool, data_format: str, dtype: Any, seed: int) -> None:
        self.training = training
        self.data_format = data_format
        self.dtype = dtype
        self.seed = seed
        self.trainable: list[Any] = []
        self.update_ops: list[Any] = []
        self._numbers: dict[str, int] = {}

    # Variables

    def block(self, kind: str) -> Any:
        """The scope of a group of layers."""
        number = self._numbers.get(kind, 0)
        self._numbers[kind] = number + 1
        return v1.variable_scope(f"{kind}{number}")

    def _variable(self, name: str, shape: Sequence[int], initializer: Any, *, trainable: bool = True) -> Any:
        variable = v1.get_variable(
            name, shape, tf.float32, initializer=initializer, trainable=trainable, use_resource=True
        )
        if trainable:
            self.trainable.append(variable)
        return variable

    def _weights(self, name: str, shape: Sequence[int], fan_in: int) -> Any:
        """He initialisation (arXiv:1502.01852), which keeps the size of activations through rectifiers."""
        full_name = f"{v1.get_variable_scope().name}/{name}"
        seed = (self.seed + zlib.crc32(full_name.partition(f"{NETWORK}/")[2].encode())) % 2**31
        initial = v1.random_normal_initializer(stddev=(2.0 / fan_in) ** 0.5, seed=seed)

        def initializer(shape: Any, dtype: Any = tf.float32, partition_info: Any = None) -> Any:
            # An operator's own seed is combined with the graph's, which differs from rank to rank.
            graph = tf.compat.v1.get_default_graph()
            graph_seed, graph.seed = graph.seed, 0
            try:
                return initial(shape, dtype=dtype)
            finally:
                graph.seed = graph_seed

        return self._cast(self._variable(name, shape, initializer))

    def _biases(self, units: int) -> Any:
        return self._cast(self._variable("biases", [units], v1.zeros_initializer()))

    def _cast(self, variable: Any) -> Any:
        return variable if self.dtype == tf.float32 else tf.cast(variable, self.dtype)

    # Shapes

    @property
    def _channel_axis(self) -> int:
        return 1 if self.data_format == "NCHW" else 3

    def channels(self, x: Any) -> int:
        """The number of channels of images, or of features when `x` is flat."""
        return int(x.shape[self._channel_axis if x.shape.rank == 4 else 1])

    def _window(self, height: int, width: int) -> list[int]:
        return [1, 1, height, width] if self.data_format == "NCHW" else [1, height, width, 1]

    def flatten(self, x: Any) -> Any:
        return tf.reshape(x, [-1, int(x.shape[1:].num_elements())])

    def concat(self, xs: Sequence[Any]) -> Any:
        """Joins images along their channels."""
        return tf.concat(xs, self._channel_axis)

    def subsample(self, x: Any, stride: int) -> Any:
        """Every `stride`-th pixel in both directions."""
        return x[:, :, ::stride, ::stride] if self.data_format == "NCHW" else x[:, ::stride, ::stride, :]

    def pad_channels(self, x: Any, channels: int) -> Any:
        """Adds channels of zeros, evenly in front and behind, up to `channels`."""
        missing = channels - self.channels(x)
        paddings = [[0, 0]] * 4
        paddings[self._channel_axis] = [missing // 2, missing - missing // 2]
        return tf.pad(x, paddings)

    def pad_border(self, x: Any, before: int, after: int) -> Any:
        """Adds pixels of zeros: `before` at the top and left, `after` at the bottom and right."""
        border = [before, after]
        spatial = (2, 3) if self.data_format == "NCHW" else (1, 2)
        return tf.pad(x, [border if axis in spatial else [0, 0] for axis in range(4)])

    # Layers with variables

    def conv(
        self,
        x: Any,
        filters: int,
        kernel: int | tuple[int, int],
        *,
        stride: int = 1,
        padding: str = "SAME",
        batch_norm: bool = False,
        bias: bool = True,
        activation: str | None = "relu",
    ) -> Any:
        """A convolution; with `batch_norm` normalised (which makes a bias superfluous), else with a bias
        unless `bias` is False. The `padding` is TensorFlow's, or FIXED: even with a stride it depends on the
        kernel alone, not on the size of the image."""
        height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        channels = self.channels(x)
        if padding == "FIXED":
            padding = "SAME" if stride == 1 or height == 1 else "VALID"
            if padding == "VALID":
                x = self.pad_border(x, (height - 1) // 2, height // 2)
        with self.block("conv"):
            shape = [height, width, channels, filters]
            weights = self._weights("conv2d/kernel", shape, height * width * channels)
            x = tf.nn.conv2d(x, weights, self._window(stride, stride), padding, data_format=self.data_format)
            if batch_norm:
                x = self._batch_norm(x)
            elif bias:
                x = tf.nn.bias_add(x, self._biases(filters), data_format=self.data_format)
        return self._activate(x, activation)

    def depthwise_conv(self, x: Any, kernel: int, *, stride: int = 1, activation: str | None = "relu") -> Any:
        """A convolution of each channel by itself, normalised."""
        channels = self.channels(x)
        with self.block("depthwise"):
            weights = self._weights("weights", [kernel, kernel, channels, 1], kernel * kernel)
            strides = self._window(stride, stride)
            x = tf.nn.depthwise_conv2d(x, weights, strides, "SAME", data_format=self.data_format)
            x = self._batch_norm(x)
        return self._activate(x, activation)

    def batch_norm(self, x: Any, *, activation: str | None = "relu") -> Any:
        """Batch normalisation on its own, for networks that normalise in front of their convolutions."""
        return self._activate(self._batch_norm(x), activation)

    def dense(self, x: Any, units: int, *, activation: str | None = None) -> Any:
        """A fully connected layer."""
        features = self.channels(x)
        with self.block("affine"):
            weights = self._weights("weights", [features, units], features)
            x = tf.nn.bias_add(tf.matmul(x, weights), self._biases(units))
        return self._activate(x, activation)

    def classifier(self, x: Any, classes: int) -> Any:
        """The last layer, the one with the highest number of its kind: float32 logits. Small weights, for no
        class is likelier at the start."""
        features = self.channels(x)
        with self.block("affine"):
            weights = self._weights("weights", [features, classes], fan_in=200 * features)
            return tf.cast(tf.nn.bias_add(tf.matmul(x, weights), self._biases(classes)), tf.float32)

    def _batch_norm(self, x: Any) -> Any:
        """Ioffe and Szegedy, arXiv:1502.03167. The kernel blends the batch's statistics into the running
        ones itself, which spares two small operators for each of up to 150 layers."""
        shape = [self.channels(x)]
        with self.block("batchnorm"):
            scale = self._variable("gamma", shape, v1.ones_initializer())
            offset = self._variable("beta", shape, v1.zeros_initializer())
            mean = self._variable("moving_mean", shape, v1.zeros_initializer(), trainable=False)
            variance = self._variable("moving_variance", shape, v1.ones_initializer(), trainable=False)
        x, new_mean, new_variance = v1.nn.fused_batch_norm(
            x,
            scale,
            offset,
            mean=mean,
            variance=variance,
            epsilon=BATCH_NORM_EPSILON,
            data_format=self.data_format,
            is_training=self.training,
            exponential_avg_factor=1.0 - BATCH_NORM_DECAY if self.training else 1.0,
        )
        if self.training:
            self.update_ops += [
                mean.assign(new_mean, read_value=False),
                variance.assign(new_variance, read_value=False),
            ]
        return x

    # Layers without

    def relu(self, x: Any) -> Any:
        return tf.nn.relu(x)

    def _activate(self, x: Any, activation: str | None) -> Any:
        if activation is None:
            return x
        if activation == "relu6":
            return tf.nn.relu6(x)
        if activation != "relu":
            raise ValueError(f"no activation named {activation!r}; models use 'relu', 'relu6' or None")
        return self.relu(x)

    def max_pool(self, x: Any, size: int, stride: int, *, padding: str = "VALID") -> Any:
        window, strides = self._window(size, size), self._window(stride, stride)
        return tf.nn.max_pool2d(x, window, strides, padding, data_format=self.data_format)

    def avg_pool(self, x: Any, size: int, stride: int, *, padding: str = "VALID") -> Any:
        window, strides = self._window(size, size), self._window(stride, stride)
        return tf.nn.avg_pool2d(x, window, strides, padding, data_format=self.data_format)

    def global_average_pool(self, x: Any) -> Any:
        return tf.reduce_mean(x, [2, 3] if self.data_format == "NCHW" else [1, 2])

    def local_response_norm(self, x: Any, *, depth_radius: int, bias: float, alpha: float) -> Any:
        """x / (bias + alpha * sum of squares over 2 `depth_radius` + 1 channels) ** 0.75. The operator knows
        NHWC only."""
        if self.data_format == "NCHW":
            x = tf.transpose(x, [0, 2, 3, 1])
        x = tf.nn.lrn(x, depth_radius=depth_radius, bias=bias, alpha=alpha, beta=0.75)
        return tf.transpose(x, [0, 3, 1, 2]) if self.data_format == "NCHW" else x

    def dropout(self, x: Any, rate: float) -> Any:
        return tf.nn.dropout(x, rate=rate) if self.training else x
