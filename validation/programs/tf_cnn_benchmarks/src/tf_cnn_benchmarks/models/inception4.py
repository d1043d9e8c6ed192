"""Inception v4 of Szegedy, Ioffe, Vanhoucke, Alemi, "Inception-v4, Inception-ResNet and the impact of
residual connections on learning", 2016 (arXiv:1602.07261, figures 3 to 9), without auxiliary classifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tf_cnn_benchmarks.models.inception import average_branch, chain

if TYPE_CHECKING:
    from tf_cnn_benchmarks.layers import Layers


def _stem(net: Layers, x: Any) -> Any:
    """Figure 3: 299 x 299 pixels to 35 x 35 with 384 channels."""

    def unpadded(x: Any, filters: int) -> Any:
        return net.conv(x, filters, 3, padding="VALID", batch_norm=True)

    x = chain(net, x, (32, 3, 2))
    x = chain(net, unpadded(x, 32), (64, 3))
    x = net.concat([net.max_pool(x, 3, 2), chain(net, x, (96, 3, 2))])
    short = chain(net, x, (64, 1))
    long = chain(net, x, (64, 1), (64, (7, 1)), (64, (1, 7)))
    x = net.concat([unpadded(short, 96), unpadded(long, 96)])
    return net.concat([chain(net, x, (192, 3, 2)), net.max_pool(x, 3, 2)])


def _module_a(net: Layers, x: Any) -> Any:
    return net.concat(
        [
            average_branch(net, x, 96),
            chain(net, x, (96, 1)),
            chain(net, x, (64, 1), (96, 3)),
            chain(net, x, (64, 1), (96, 3), (96, 3)),
        ]
    )


def _reduction_a(net: Layers, x: Any) -> Any:
    return net.concat(
        [
            net.max_pool(x, 3, 2),
            chain(net, x, (384, 3, 2)),
            chain(net, x, (192, 1), (224, 3), (256, 3, 2)),
        ]
    )


def _module_b(net: Layers, x: Any) -> Any:
    """Figure 5 ends its third branch with a second 1 x 7. As in the other branches a 7 x 1 goes with it."""
    return net.concat(
        [
            average_branch(net, x, 128),
            chain(net, x, (384, 1)),
            chain(net, x, (192, 1), (224, (1, 7)), (256, (7, 1))),
            chain(net, x, (192, 1), (192, (1, 7)), (224, (7, 1)), (224, (1, 7)), (256, (7, 1))),
        ]
    )


def _reduction_b(net: Layers, x: Any) -> Any:
    return net.concat(
        [
            net.max_pool(x, 3, 2),
            chain(net, x, (192, 1), (192, 3, 2)),
            chain(net, x, (256, 1), (256, (1, 7)), (320, (7, 1)), (320, 3, 2)),
        ]
    )


def _module_c(net: Layers, x: Any) -> Any:
    narrow = chain(net, x, (384, 1))
    deep = chain(net, x, (384, 1), (448, (1, 3)), (512, (3, 1)))
    return net.concat(
        [
            average_branch(net, x, 256),
            chain(net, x, (256, 1)),
            chain(net, narrow, (256, (1, 3))),
            chain(net, narrow, (256, (3, 1))),
            chain(net, deep, (256, (3, 1))),
            chain(net, deep, (256, (1, 3))),
        ]
    )


def inception4(net: Layers, x: Any) -> Any:
    """299 x 299 pixels to 1536 features."""
    x = _stem(net, x)
    for _ in range(4):
        x = _module_a(net, x)
    x = _reduction_a(net, x)
    for _ in range(7):
        x = _module_b(net, x)
    x = _reduction_b(net, x)
    for _ in range(3):
        x = _module_c(net, x)
    return net.dropout(net.global_average_pool(x), 0.2)
