"""Inception v3 of Szegedy, Vanhoucke, Ioffe, Shlens, Wojna, "Rethinking the Inception architecture for
computer vision", 2015 (arXiv:1512.00567), without the auxiliary classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tf_cnn_benchmarks.layers import Layers

Step = tuple[int, int | tuple[int, int]] | tuple[int, int | tuple[int, int], int]
"""Filters, kernel (height and width) and stride of one convolution; stride 2 goes with VALID padding."""


def chain(net: Layers, x: Any, *steps: Step) -> Any:
    """Normalised convolutions one after the other."""
    for filters, kernel, *rest in steps:
        stride = rest[0] if rest else 1
        padding = "VALID" if stride == 2 else "SAME"
        x = net.conv(x, filters, kernel, stride=stride, padding=padding, batch_norm=True)
    return x


def average_branch(net: Layers, x: Any, filters: int) -> Any:
    """The branch of a module that averages 3 x 3 pixels and projects them."""
    return chain(net, net.avg_pool(x, 3, 1, padding="SAME"), (filters, 1))


def _module_35(net: Layers, x: Any, pool_filters: int) -> Any:
    return net.concat(
        [
            chain(net, x, (64, 1)),
            chain(net, x, (48, 1), (64, 5)),
            chain(net, x, (64, 1), (96, 3), (96, 3)),
            average_branch(net, x, pool_filters),
        ]
    )


def _module_17(net: Layers, x: Any, n: int) -> Any:
    return net.concat(
        [
            chain(net, x, (192, 1)),
            chain(net, x, (n, 1), (n, (1, 7)), (192, (7, 1))),
            chain(net, x, (n, 1), (n, (7, 1)), (n, (1, 7)), (n, (7, 1)), (192, (1, 7))),
            average_branch(net, x, 192),
        ]
    )


def _module_8(net: Layers, x: Any) -> Any:
    narrow = chain(net, x, (384, 1))
    deep = chain(net, x, (448, 1), (384, 3))
    return net.concat(
        [
            chain(net, x, (320, 1)),
            chain(net, narrow, (384, (1, 3))),
            chain(net, narrow, (384, (3, 1))),
            chain(net, deep, (384, (1, 3))),
            chain(net, deep, (384, (3, 1))),
            average_branch(net, x, 192),
        ]
    )


def inception3(net: Layers, x: Any) -> Any:
    """299 x 299 pixels to 2048 features."""
    x = net.conv(x, 32, 3, stride=2, padding="VALID", batch_norm=True)
    x = net.conv(x, 32, 3, padding="VALID", batch_norm=True)
    x = net.conv(x, 64, 3, batch_norm=True)
    x = net.max_pool(x, 3, 2)
    x = net.conv(x, 80, 1, batch_norm=True)
    x = net.conv(x, 192, 3, padding="VALID", batch_norm=True)
    x = net.max_pool(x, 3, 2)
    for pool_filters in (32, 64, 64):
        x = _module_35(net, x, pool_filters)
    x = net.concat(
        [
            chain(net, x, (384, 3, 2)),
            chain(net, x, (64, 1), (96, 3), (96, 3, 2)),
            net.max_pool(x, 3, 2),
        ]
    )
    for n in (128, 160, 160, 192):
        x = _module_17(net, x, n)
    x = net.concat(
        [
            chain(net, x, (192, 1), (320, 3, 2)),
            chain(net, x, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2)),
            net.max_pool(x, 3, 2),
        ]
    )
    for _ in range(2):
        x = _module_8(net, x)
    return net.dropout(net.global_average_pool(x), 0.2)
