"""Residual networks of He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015
(arXiv:1512.03385): table 1 for ImageNet, section 4.2 for CIFAR-10."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tf_cnn_benchmarks.models.spec import Build

if TYPE_CHECKING:
    from tf_cnn_benchmarks.layers import Layers

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def resnet(depth: int, *, version: str = "v1") -> Build:
    """The builder for ImageNet and `depth` of 50, 101 or 152 layers.

    `v1` halves the image in the first 1 x 1 convolution of a block, as the paper does; `v1.5` in the 3 x 3
    one, which costs about 12 % more arithmetic and gains about half a per cent of accuracy. Both have the
    same parameters.
    """

    def bottleneck(net: Layers, x: Any, filters: int, stride: int) -> Any:
        shortcut = x
        if net.channels(x) != 4 * filters:
            shortcut = net.conv(x, 4 * filters, 1, stride=stride, batch_norm=True, activation=None)
        first, second = (1, stride) if version == "v1.5" else (stride, 1)
        y = net.conv(x, filters, 1, stride=first, batch_norm=True)
        y = net.conv(y, filters, 3, stride=second, batch_norm=True)
        y = net.conv(y, 4 * filters, 1, batch_norm=True, activation=None)
        return net.relu(y + shortcut)

    def build(net: Layers, x: Any) -> Any:
        x = net.conv(x, 64, 7, stride=2, batch_norm=True)
        x = net.max_pool(x, 3, 2, padding="SAME")
        for group, blocks in enumerate(BLOCKS[depth]):
            for block in range(blocks):
                x = bottleneck(net, x, 64 << group, stride=2 if group and not block else 1)
        return net.global_average_pool(x)

    return build


def resnet_cifar10(depth: int) -> Build:
    """The builder for small images and `depth` = 6 n + 2 layers: n blocks each at 16, 32 and 64 filters,
    parameter-free shortcuts (option A: every second pixel, missing channels zero)."""
    blocks, rest = divmod(depth - 2, 6)
    if rest:
        raise ValueError(f"a CIFAR-10 ResNet has 6 n + 2 layers, not {depth}")

    def basic(net: Layers, x: Any, filters: int, stride: int) -> Any:
        y = net.conv(x, filters, 3, stride=stride, batch_norm=True)
        y = net.conv(y, filters, 3, batch_norm=True, activation=None)
        if stride != 1:
            x = net.pad_channels(net.subsample(x, stride), filters)
        return net.relu(y + x)

    def build(net: Layers, x: Any) -> Any:
        x = net.conv(x, 16, 3, batch_norm=True)
        for group in range(3):
            for block in range(blocks):
                x = basic(net, x, 16 << group, stride=2 if group and not block else 1)
        return net.global_average_pool(x)

    return build
