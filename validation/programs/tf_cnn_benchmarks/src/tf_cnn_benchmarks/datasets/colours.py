"""Random changes of an image's colours, as Inception's training has them (arXiv:1409.4842, section 6, after
Howard, arXiv:1312.5402)."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

BRIGHTNESS = 32.0 / 255.0
SATURATION = CONTRAST = (0.5, 1.5)
HUE = 0.2
"""The largest shift of the hue: a share of the colour circle in HSV; in YIQ half of it in radians, 0.2 pi."""

YIQ = ((0.299, 0.587, 0.114), (0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135))
"""Rows are luma, I and Q of (red, green, blue), by the FCC's NTSC definition."""


def distort_colours(image: Any, *, in_yiq: bool) -> Any:
    """`image` (H x W x 3, 0 to 255) with random brightness, contrast, hue and saturation."""
    image = tf.image.random_brightness(image / 255.0, max_delta=BRIGHTNESS)
    if in_yiq:
        turn = tf.random.uniform([], -HUE * math.pi, HUE * math.pi)
        image = turn_in_yiq(image, turn, tf.random.uniform([], *SATURATION))
    else:
        image = tf.image.random_saturation(image, *SATURATION)
        image = tf.image.random_hue(image, max_delta=HUE)
    image = tf.image.random_contrast(image, *CONTRAST)
    return tf.clip_by_value(image, 0.0, 1.0) * 255.0


def turn_in_yiq(image: Any, turn: Any, saturation: Any) -> Any:
    """The hue turned by `turn` radians and the colourfulness times `saturation`; the luma stays."""
    yiq = tf.constant(YIQ, tf.float32)
    cosine, sine = tf.cos(turn) * saturation, tf.sin(turn) * saturation
    zero = tf.zeros_like(cosine)
    rotation = tf.stack(
        [
            tf.stack([tf.ones_like(cosine), zero, zero]),
            tf.stack([zero, cosine, -sine]),
            tf.stack([zero, sine, cosine]),
        ]
    )
    matrix = tf.linalg.inv(yiq) @ rotation @ yiq
    return tf.einsum("hwc,dc->hwd", image, matrix)
