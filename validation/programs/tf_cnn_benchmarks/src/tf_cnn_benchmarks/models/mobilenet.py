"""MobileNet v2 of Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: inverted residuals and linear
bottlenecks", 2018 (arXiv:1801.04381), with width multiplier 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tf_cnn_benchmarks.layers import Layers

BOTTLENECKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Rows of table 2: expansion, output channels, repetitions, stride of the first."""


def _bottleneck(net: Layers, x: Any, expansion: int, filters: int, stride: int) -> Any:
    y = x
    if expansion != 1:
        y = net.conv(y, expansion * net.channels(x), 1, batch_norm=True, activation="relu6")
    y = net.depthwise_conv(y, 3, stride=stride, activation="relu6")
    y = net.conv(y, filters, 1, batch_norm=True, activation=None)
    return x + y if stride == 1 and net.channels(x) == filters else y


def mobilenet(net: Layers, x: Any) -> Any:
    """224 x 224 pixels to 1280 features."""
    x = net.conv(x, 32, 3, stride=2, batch_norm=True, activation="relu6")
    for expansion, filters, repetitions, stride in BOTTLENECKS:
        for number in range(repetitions):
            x = _bottleneck(net, x, expansion, filters, 1 if number else stride)
    x = net.conv(x, 1280, 1, batch_norm=True, activation="relu6")
    return net.dropout(net.global_average_pool(x), 0.2)
