"""Residual networks of He, Zhang, Ren, Sun: v1 of "Deep residual learning for image recognition", 2015
(arXiv:1512.03385; table 1 for ImageNet, section 4.2 for CIFAR-10), and v2 of "Identity mappings in deep
residual networks", 2016 (arXiv:1603.05027), whose blocks normalise and rectify in front of each convolution
and leave the sum as it is.

In v2 the rectified output of the first convolution is what both paths of the first block take, and the last
sum is normalised and rectified once more, as the appendix of the second paper says.
"""

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
    same parameters. `v2` halves it where `v1` does; its projections have no normalisation of their own.
    Convolutions with a stride pad by their kernel's size alone, as most trained ResNets do.
    """

    def bottleneck(net: Layers, x: Any, filters: int, stride: int) -> Any:
        shortcut = x
        first, second = (1, stride) if version == "v1.5" else (stride, 1)
        with net.block(f"resnet_{version}"):
            if net.channels(x) != 4 * filters:
                shortcut = net.conv(x, 4 * filters, 1, stride=stride, batch_norm=True, activation=None)
            y = net.conv(x, filters, 1, stride=first, batch_norm=True)
            y = net.conv(y, filters, 3, stride=second, padding="FIXED", batch_norm=True)
            y = net.conv(y, 4 * filters, 1, batch_norm=True, activation=None)
        return net.relu(y + shortcut)

    def preactivated(net: Layers, x: Any, filters: int, stride: int, *, first: bool) -> Any:
        y = x if first else net.batch_norm(x)
        shortcut = x
        if net.channels(x) != 4 * filters:
            shortcut = net.conv(y, 4 * filters, 1, stride=stride, bias=False, activation=None)
        y = net.conv(y, filters, 1, stride=stride, batch_norm=True)
        y = net.conv(y, filters, 3, batch_norm=True)
        return shortcut + net.conv(y, 4 * filters, 1, bias=False, activation=None)

    def build(net: Layers, x: Any) -> Any:
        x = net.conv(x, 64, 7, stride=2, padding="FIXED", batch_norm=True)
        x = net.max_pool(x, 3, 2, padding="SAME")
        for group, blocks in enumerate(BLOCKS[depth]):
            for block in range(blocks):
                filters, stride = 64 << group, 2 if group and not block else 1
                if version == "v2":
                    x = preactivated(net, x, filters, stride, first=not group and not block)
                else:
                    x = bottleneck(net, x, filters, stride)
        return net.global_average_pool(net.batch_norm(x) if version == "v2" else x)

    return build


def resnet_cifar10(depth: int, *, version: str = "v1") -> Build:
    """The builder for small images and `depth` = 6 n + 2 layers: n blocks each at 16, 32 and 64 filters,
    parameter-free shortcuts (option A: every second pixel, missing channels zero). `v1` or `v2`. What leaves
    v1's first convolution is not rectified, as in the networks whose checkpoints users have."""
    blocks, rest = divmod(depth - 2, 6)
    if rest:
        raise ValueError(f"a CIFAR-10 ResNet has 6 n + 2 layers, not {depth}")

    def shorten(net: Layers, x: Any, filters: int, stride: int) -> Any:
        return x if stride == 1 else net.pad_channels(net.subsample(x, stride), filters)

    def basic(net: Layers, x: Any, filters: int, stride: int) -> Any:
        y = net.conv(x, filters, 3, stride=stride, batch_norm=True)
        y = net.conv(y, filters, 3, batch_norm=True, activation=None)
        return net.relu(y + shorten(net, x, filters, stride))

    def preactivated(net: Layers, x: Any, filters: int, stride: int, *, first: bool) -> Any:
        y = x if first else net.batch_norm(x)
        y = net.conv(y, filters, 3, stride=stride, batch_norm=True)
        y = net.conv(y, filters, 3, bias=False, activation=None)
        return y + shorten(net, x, filters, stride)

    def build(net: Layers, x: Any) -> Any:
        x = net.conv(x, 16, 3, batch_norm=True, activation="relu" if version == "v2" else None)
        for group in range(3):
            for block in range(blocks):
                filters, stride = 16 << group, 2 if group and not block else 1
                if version == "v2":
                    x = preactivated(net, x, filters, stride, first=not group and not block)
                else:
                    x = basic(net, x, filters, stride)
        return net.global_average_pool(net.batch_norm(x) if version == "v2" else x)

    return build
