"""GoogLeNet of Szegedy et al., "Going deeper with convolutions", 2014 (arXiv:1409.4842), without the
auxiliary classifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tf_cnn_benchmarks.layers import Layers

Module = tuple[int, int, int, int, int, int]
"""Filters of a row of table 1: #1x1, #3x3 reduce, #3x3, #5x5 reduce, #5x5, pool proj."""

MODULES: tuple[tuple[Module, ...], ...] = (
    (
        (64, 96, 128, 16, 32, 32),
        (128, 128, 192, 32, 96, 64),
    ),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    (
        (256, 160, 320, 32, 128, 128),
        (384, 192, 384, 48, 128, 128),
    ),
)
"""Inception 3a-3b, 4a-4e and 5a-5b; a max pooling stands before each group."""


def _module(net: Layers, x: Any, filters: Module) -> Any:
    ones, reduce_3, threes, reduce_5, fives, pooled = filters
    return net.concat(
        [
            net.conv(x, ones, 1),
            net.conv(net.conv(x, reduce_3, 1), threes, 3),
            net.conv(net.conv(x, reduce_5, 1), fives, 5),
            net.conv(net.max_pool(x, 3, 1, padding="SAME"), pooled, 1),
        ]
    )


def _norm(net: Layers, x: Any) -> Any:
    """The paper gives no constants; these are AlexNet's (Krizhevsky, Sutskever, Hinton, NIPS 2012)."""
    return net.local_response_norm(x, depth_radius=2, bias=2.0, alpha=1e-4)


def googlenet(net: Layers, x: Any) -> Any:
    """224 x 224 pixels to 1024 features."""
    x = net.conv(x, 64, 7, stride=2)
    x = _norm(net, net.max_pool(x, 3, 2, padding="SAME"))
    x = net.conv(x, 64, 1)
    x = _norm(net, net.conv(x, 192, 3))
    for group in MODULES:
        x = net.max_pool(x, 3, 2, padding="SAME")
        for filters in group:
            x = _module(net, x, filters)
    return net.dropout(net.global_average_pool(x), 0.4)
