"""DenseNet of Huang, Liu, van der Maaten, Weinberger, "Densely connected convolutional networks", 2016
(arXiv:1608.06993), for CIFAR-10."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tf_cnn_benchmarks.models.spec import Build

if TYPE_CHECKING:
    from tf_cnn_benchmarks.layers import Layers

DENSE_BLOCKS = 3


def densenet_cifar10(depth: int, growth: int) -> Build:
    """The builder for small images and `depth` = 3 n + 4 layers: three dense blocks of n 3 x 3 convolutions,
    each of which adds `growth` channels to those it sees.

    The plain network of the paper's table 2, without bottlenecks and without compression (those make
    DenseNet-BC): 16 channels go into the first block, and a transition keeps as many channels as it gets. No
    dropout, which the paper uses only where training images are not augmented.
    """
    layers, rest = divmod(depth - DENSE_BLOCKS - 1, DENSE_BLOCKS)
    if rest:
        raise ValueError(f"a CIFAR-10 DenseNet has 3 n + 4 layers, not {depth}")

    def conv(net: Layers, x: Any, filters: int, kernel: int) -> Any:
        return net.conv(net.batch_norm(x), filters, kernel, bias=False, activation=None)

    def build(net: Layers, x: Any) -> Any:
        x = net.conv(x, 16, 3, bias=False, activation=None)
        for block in range(DENSE_BLOCKS):
            if block:
                x = net.avg_pool(conv(net, x, net.channels(x), 1), 2, 2)
            for _ in range(layers):
                x = net.concat([x, conv(net, x, growth, 3)])
        return net.global_average_pool(net.batch_norm(x))

    return build
