"""From an encoded image of ImageNet to the model's input."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.datasets.colours import distort_colours
from tf_cnn_benchmarks.datasets.spec import DEFAULT_OPTIONS, InputOptions

CENTRAL_FRACTION = 0.875
OFFICIAL_SHORTER_SIDE = 256
MEANS = (123.68, 116.78, 103.94)
"""The means of the channels of ImageNet's training images."""
METHODS = ("nearest", "bilinear", "bicubic", "area")


def parse(
    record: Any, image_size: int, place: Any, *, training: bool, options: InputOptions = DEFAULT_OPTIONS
) -> tuple[Any, Any]:
    """One image of image_size x image_size x 3 and its label; `place` is where in its batch it is.

    The values are -1 to 1, or with the channels' means subtracted -124 to 151.
    """
    sides = ("ymin", "xmin", "ymax", "xmax")
    boxes = {f"image/object/bbox/{side}": tf.io.VarLenFeature(tf.float32) for side in sides}
    features = tf.io.parse_single_example(
        record,
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64),
            **boxes,
        },
    )
    encoded = features["image/encoded"]
    official = options.input_preprocessor == "official_models_imagenet"
    whole = not options.fuse_decode_and_crop
    if options.resize_method == "crop" and not official:
        image = _cut_to_size(encoded, image_size, training=training)
    elif training:
        edges = [tf.sparse.to_dense(features[name]) for name in boxes]
        image = _random_part(encoded, tf.stack(edges, axis=-1)[None], whole=whole)
        image = _resize(image, image_size, options.resize_method, place)
    elif official:
        image = _resized_then_central(encoded, image_size)
    else:
        image = _resize(_central_part(encoded, whole=whole), image_size, options.resize_method, place)
    if training:
        image = tf.image.random_flip_left_right(image)
        if options.distortions and not official:
            image = distort_colours(image, in_yiq=options.distort_color_in_yiq)
    image = image - tf.constant(MEANS) if official or options.ml_perf else image / 127.5 - 1.0
    return image, tf.cast(features["image/class/label"], tf.int32)


def _resize(image: Any, size: int, method: str, place: Any) -> Any:
    """float32 of size x size; round_robin takes the methods in turns along the batch."""

    def by(name: str) -> Any:
        return tf.cast(tf.image.resize(image, [size, size], method=name), tf.float32)

    if method != "round_robin":
        return by(method)
    turn = tf.cast(place % len(METHODS), tf.int32)
    resized = tf.switch_case(turn, [lambda name=name: by(name) for name in METHODS])
    return tf.ensure_shape(resized, [size, size, 3])


def _cut_to_size(encoded: Any, size: int, *, training: bool) -> Any:
    """A part of the image at its own scale: anywhere for training, else the middle."""
    image = tf.cast(tf.io.decode_image(encoded, channels=3, expand_animations=False), tf.float32)
    shape = tf.shape(image)
    text = f"--resize_method=crop needs images of at least {size} x {size} pixels; take another method"
    with tf.control_dependencies([tf.debugging.assert_greater_equal(shape[:2], size, message=text)]):
        image = tf.identity(image)
    if training:
        return tf.image.random_crop(image, [size, size, 3])
    corner = (shape[0] - size) // 2, (shape[1] - size) // 2
    return tf.ensure_shape(tf.slice(image, tf.stack([*corner, 0]), [size, size, 3]), [size, size, 3])


def _resized_then_central(encoded: Any, size: int) -> Any:
    """The shorter side made 256 pixels (or what a larger model needs in proportion), then the middle."""
    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    shape = tf.cast(tf.shape(image)[:2], tf.float32)
    shorter = max(OFFICIAL_SHORTER_SIDE, round(size / CENTRAL_FRACTION))
    target = tf.maximum(tf.cast(tf.round(shape * (shorter / tf.reduce_min(shape))), tf.int32), size)
    image = tf.image.resize(image, target)
    corner = (target[0] - size) // 2, (target[1] - size) // 2
    return tf.ensure_shape(tf.slice(image, tf.stack([*corner, 0]), [size, size, 3]), [size, size, 3])


def _crop(encoded: Any, y: Any, x: Any, height: Any, width: Any, *, whole: bool) -> Any:
    """A rectangle of the image; of a JPEG only that rectangle is decoded, unless the `whole` is to be."""
    window = tf.stack([y, x, height, width])

    def cut(image: Any) -> Any:
        return tf.slice(image, [y, x, 0], tf.stack([height, width, 3]))

    def of_jpeg() -> Any:
        if whole:
            return cut(tf.image.decode_jpeg(encoded, channels=3))
        return tf.image.decode_and_crop_jpeg(encoded, window, channels=3)

    return tf.cond(tf.io.is_jpeg(encoded), of_jpeg, lambda: cut(tf.image.decode_png(encoded, channels=3)))


def _shape(encoded: Any) -> Any:
    return tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: tf.image.extract_jpeg_shape(encoded),
        lambda: tf.shape(tf.image.decode_png(encoded, channels=3)),
    )


def _random_part(encoded: Any, boxes: Any, *, whole: bool) -> Any:
    """Between 8 % and all of the image, at an aspect ratio of 3/4 to 4/3 (arXiv:1409.4842)."""
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        _shape(encoded),
        boxes,
        min_object_covered=0.1,
        aspect_ratio_range=[0.75, 1.33],
        area_range=[0.08, 1.0],
        max_attempts=100,
        use_image_if_no_bounding_boxes=True,
    )
    return _crop(encoded, begin[0], begin[1], size[0], size[1], whole=whole)


def _central_part(encoded: Any, *, whole: bool) -> Any:
    """The central square of 87.5 % of the shorter side."""
    shape = _shape(encoded)
    height, width = shape[0], shape[1]
    side = tf.cast(CENTRAL_FRACTION * tf.cast(tf.minimum(height, width), tf.float32), tf.int32)
    side = tf.maximum(side, 1)
    return _crop(encoded, (height - side) // 2, (width - side) // 2, side, side, whole=whole)
