"""VGG of Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition",
2014 (arXiv:1409.1556), configurations A (11 layers), D (16) and E (19)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tf_cnn_benchmarks.models.spec import Build

if TYPE_CHECKING:
    from tf_cnn_benchmarks.layers import Layers

CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
FILTERS = (64, 128, 256, 512, 512)


def vgg(depth: int) -> Build:
    """The builder for `depth` weight layers (11, 16 or 19), for 224 x 224 pixels."""

    def build(net: Layers, x: Any) -> Any:
        for repeats, filters in zip(CONVOLUTIONS[depth], FILTERS, strict=True):
            for _ in range(repeats):
                x = net.conv(x, filters, 3)
            x = net.max_pool(x, 2, 2)
        x = net.flatten(x)
        x = net.dropout(net.dense(x, 4096, activation="relu"), 0.5)
        return net.dropout(net.dense(x, 4096, activation="relu"), 0.5)

    return build
