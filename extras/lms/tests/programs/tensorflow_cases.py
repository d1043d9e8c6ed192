"""Trainings with blocks that are computed again, also from inputs on the host, against others without."""

import gc
from collections.abc import Callable
from typing import Any

import keras
import lms
import lms.tensorflow
import numpy as np
import tensorflow as tf
import tf_keras
from _cases import refused, run

# A second device, whose tensors are not those of /CPU:0.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
KERAS = (keras, tf_keras)
IMAGES = np.random.default_rng(0).normal(size=(32, 8, 8, 3)).astype("float32")
LABELS = np.arange(32) % 10


class Residual(keras.layers.Layer):
    """Its call does not take `training`, which the layers in it need."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inside = [
            keras.layers.Conv2D(width, 3, padding="same"),
            keras.layers.BatchNormalization(),
            keras.layers.Activation("gelu"),
            keras.layers.Dropout(0.3),
            keras.layers.Conv2D(width, 1),
        ]

    def build(self, shape: Any) -> None:
        for layer in self.inside:
            layer.build(shape)

    def call(self, x: Any) -> Any:
        y = x
        for layer in self.inside:
            y = layer(y)
        return x + y


def residuals() -> Any:
    inputs = keras.Input((8, 8, 3))
    x = keras.layers.Conv2D(8, 3)(inputs)
    for _ in range(3):
        x = Residual(8)(x)
    return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x)))


def branches() -> Any:
    inputs = keras.Input((8, 8, 3))
    x = inputs
    for _ in range(3):
        y = keras.layers.Conv2D(8, 3, padding="same")(x)
        y = keras.layers.Dropout(0.2)(keras.layers.Activation("relu")(keras.layers.BatchNormalization()(y)))
        x = keras.layers.Add()([y, keras.layers.Conv2D(8, 1)(x)])
    return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x)))


def chain() -> Any:
    layers = [keras.layers.Dense(24, activation="tanh") for _ in range(6)]
    return keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), *layers, keras.layers.Dense(10)])


def trained(
    make: Callable[[], Any], change: Callable[[Any], object] = lambda model: None, **more: Any
) -> Any:
    keras.utils.set_random_seed(1)
    model = make()
    change(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, **more)
    model.fit(IMAGES, LABELS, batch_size=16, shuffle=False, verbose=0)
    return model.get_weights()


def same(these: Any, those: Any, within: float = 1e-5) -> None:
    """But for what TensorFlow rounds otherwise where it fuses other operations of a graph."""
    for a, b in zip(these, those, strict=True):
        np.testing.assert_allclose(a, b, rtol=within, atol=within)


def models() -> None:
    """Graphs with branches, layers of layers, a sequence; also what is random, and averages."""
    for make, ways in (
        (branches, ((1, False), (3, True))),
        (residuals, ((2, False),)),
        (chain, ((3, True), (1000, False))),
    ):
        wanted = trained(make)
        for every, offload in ways:
            lms.tensorflow.reset_stats()
            found = trained(make, lambda model: lms.tensorflow.enable(model, every, offload=offload))  # noqa: B023
            same(found, wanted)
            assert (lms.tensorflow.stats().moved > 0) == offload


def eagerly() -> None:
    for make, offload in ((branches, True), (residuals, False)):
        wanted = trained(make, run_eagerly=True)
        change = lambda model: lms.tensorflow.enable(model, 3, offload=offload)  # noqa: B023, E731
        same(trained(make, change, run_eagerly=True), wanted, 0.0)


def layers() -> None:
    def change(model: Any) -> None:
        for at, layer in enumerate(each for each in model.layers if isinstance(each, Residual)):
            assert (lms.tensorflow.offload if at else lms.tensorflow.recompute)(layer) is layer
            refused(lms.LmsError, "is a block already", lms.tensorflow.recompute, layer)

    lms.tensorflow.reset_stats()
    same(trained(residuals, change), trained(residuals))
    # 2 blocks and 2 steps, of 16 images of 6 x 6 with 8 channels
    assert lms.tensorflow.stats() == lms.tensorflow.Stats(2 * 2 * 16 * 6 * 6 * 8 * 4, 4), (
        lms.tensorflow.stats()
    )


def mixed_precision() -> None:
    """Eagerly, as bfloat16 shows what a graph rounds otherwise."""
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        change = lambda model: lms.tensorflow.enable(model, 4, offload=True)  # noqa: E731
        same(trained(residuals, change, run_eagerly=True), trained(residuals, run_eagerly=True), 0.0)
    finally:
        keras.mixed_precision.set_global_policy("float32")


def compiled_by_xla() -> None:
    """Which computes again, but does not offload."""
    wanted = trained(chain, jit_compile=True)
    same(trained(chain, lambda model: lms.tensorflow.enable(model, 2), jit_compile=True), wanted)
    offload = lambda model: lms.tensorflow.enable(model, 2, offload=True)  # noqa: E731
    refused(lms.LmsError, "jit_compile=False", lambda: trained(chain, offload, jit_compile=True))


def masks() -> None:
    """Go from block to block."""

    def make() -> Any:
        inputs = keras.Input((8, 8, 3))
        x = keras.layers.Reshape((8, 24))(inputs)
        x = keras.layers.Masking(mask_value=0.0)(keras.layers.ReLU(threshold=1.0)(x))
        x = keras.layers.Dropout(0.1)(x)
        return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.GRU(8)(x)))

    IMAGES[:, 5:] = 0
    wanted = trained(make)
    same(trained(make, lambda model: lms.tensorflow.enable(model, 1)), wanted)


def other_losses() -> None:
    def make() -> Any:
        first = keras.layers.Dense(8, activity_regularizer="l2")
        return keras.Sequential(
            [keras.Input((8, 8, 3)), keras.layers.Flatten(), first, keras.layers.Dense(10)]
        )

    refused(
        lms.LmsError, "adds a loss of its own", trained, make, lambda model: lms.tensorflow.enable(model, 2)
    )


def after_training() -> None:
    """Predictions and files are those of the model without."""
    keras.utils.set_random_seed(1)
    plain = branches()
    wanted = plain.predict(IMAGES, verbose=0)
    lms.tensorflow.enable(plain, 3, offload=True)
    same([plain.predict(IMAGES, verbose=0)], [wanted])
    again = keras.models.model_from_json(plain.to_json())
    again.set_weights(plain.get_weights())
    same([again.predict(IMAGES, verbose=0)], [wanted])


def of_tf_keras() -> None:
    def block(width: int) -> Any:
        inside = tf_keras.layers
        parts = [
            inside.Conv2D(width, 3, padding="same"),
            inside.BatchNormalization(),
            inside.Activation("gelu"),
        ]
        return tf_keras.Sequential([*parts, inside.Conv2D(width, 1)])

    def make(change: Callable[[Any], object] = lambda model: None) -> Any:
        tf_keras.utils.set_random_seed(1)
        inside = tf_keras.layers
        blocks = [block(8) for _ in range(3)]
        parts = [inside.Conv2D(8, 3), *blocks, inside.GlobalAveragePooling2D(), inside.Dense(10)]
        model = tf_keras.Sequential([tf_keras.Input((8, 8, 3)), *parts])
        change(model)
        loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf_keras.optimizers.SGD(0.1, momentum=0.9), loss)
        model.fit(IMAGES, LABELS, batch_size=16, shuffle=False, verbose=0)
        return model.get_weights()

    wanted = make()
    blocks: list[int] = []
    same(make(lambda model: blocks.append(lms.tensorflow.enable(model))), wanted)
    lms.tensorflow.reset_stats()
    same(make(lambda model: blocks.append(lms.tensorflow.enable(model, offload=True))), wanted)
    assert blocks == [3, 3] and lms.tensorflow.stats().tensors == 3 * 2
    random = tf_keras.Sequential([tf_keras.layers.Dense(3), tf_keras.layers.Dropout(0.5, name="random")])
    refused(lms.LmsError, "the random numbers of random", lms.tensorflow.recompute, random)
    refused(lms.LmsError, "no layers of layers", lms.tensorflow.enable, random)


def functions() -> None:
    """With variables, structures and whole numbers. The second call is the backward pass's."""
    weight = tf.Variable(tf.random.stateless_normal((6, 6), (1, 2)))
    x = tf.random.stateless_normal((5, 6), (3, 4))
    rows = tf.constant([0, 2, 4])
    calls = []

    def function(parts: dict[str, Any], rows: Any, scale: float) -> Any:
        calls.append(1)
        y = tf.tanh(parts["x"] @ weight) * scale
        return {"all": tf.tanh(y @ weight), "rows": tf.gather(y, rows)}

    def slopes(call: Callable[..., Any]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            made = call({"x": x}, rows, scale=2.0)
            loss = tf.reduce_sum(made["all"] ** 2) + tf.reduce_sum(made["rows"] ** 3)
        return tape.gradient(loss, [x, weight])

    wanted = slopes(function)
    for change in (lms.tensorflow.recompute, lms.tensorflow.offload):
        for graph in (False, True):
            calls.clear()
            call = change(function)
            same((tf.function(slopes) if graph else slopes)(call), wanted, 1e-5 if graph else 0.0)
            assert graph or len(calls) == 2, calls
    refused(TypeError, "neither a layer nor a function", lms.tensorflow.recompute, 3)
    refused(ValueError, "every is 0", lms.tensorflow.enable, chain(), 0)


def where_tensors_are() -> None:
    """A block on a device: what it keeps is on /CPU:0, and comes back to the device."""
    seen = []

    def function(x: Any) -> Any:
        seen.append((x.device.rpartition("/")[2], tf.executing_eagerly()))
        return tf.tanh(x) * 2

    call = lms.tensorflow.offload(function)
    with tf.device("/CPU:1"):
        x = tf.ones((40, 50)) * 3
    lms.tensorflow.reset_stats()
    with tf.GradientTape() as tape:
        tape.watch(x)
        with tf.device("/CPU:1"):
            y = call(x)
    assert any(
        isinstance(each, tf.Tensor) and each.shape == x.shape and each.device.endswith("CPU:0")
        for each in gc.get_objects()
    ), "nothing is kept on the host"
    slope = tape.gradient(y, x)
    assert [device for device, _ in seen] == ["device:CPU:1", "device:CPU:1"], seen
    same([slope], [2 * (1 - np.tanh(3.0) ** 2) * np.ones((40, 50))], 1e-6)
    assert lms.tensorflow.stats() == lms.tensorflow.Stats(40 * 50 * 4, 1)

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            with tf.device("/CPU:1"):
                y = call(x)
        return tape.gradient(y, x)

    graph = step.get_concrete_function(tf.TensorSpec((40, 50))).graph
    devices = {
        kind: [
            op.device[-5:]
            for op in graph.get_operations()
            if f"lms/{kind}/" in op.name and op.type == "Identity"
        ]
        for kind in ("swap_out", "swap_in")
    }
    assert devices == {"swap_out": ["CPU:0"], "swap_in": ["CPU:1"]}, devices


run(
    *(models, eagerly, layers, mixed_precision, compiled_by_xla, masks, other_losses, after_training),
    *(of_tf_keras, functions, where_tensors_are),
)
