"""The ResNets of TensorFlow's official models: the networks of He, Zhang, Ren, Sun (arXiv:1512.03385 and, for
v2, arXiv:1603.05027) in the form in which that repository trained them on ImageNet.

Three things differ from `resnet.py`. A bottleneck halves the image in its 3 x 3 convolution. The first block
of every group projects its shortcut, even where the shortcut's width is right already (18 and 34 layers). And
in v2 nothing stands between the first convolution and the pooling: the first block has a normalisation of its
own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tf_cnn_benchmarks.models.spec import Build

if TYPE_CHECKING:
    from tf_cnn_benchmarks.layers import Layers

BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}
FIRST_WITH_BOTTLENECKS = 50


def official_resnet(depth: int, *, version: str = "v1") -> Build:
    """The builder for `depth` layers (18, 34, 50, 101, 152 or 200), `v1` or `v2`, for 224 x 224 pixels."""
    bottlenecks = depth >= FIRST_WITH_BOTTLENECKS
    behind = version == "v1"

    def conv(net: Layers, x: Any, filters: int, kernel: int, stride: int = 1, **options: Any) -> Any:
        return net.conv(x, filters, kernel, stride=stride, padding="FIXED", **options)

    def bare(net: Layers, x: Any, filters: int, kernel: int, stride: int = 1) -> Any:
        """v1's convolutions in front of a sum are normalised, v2's are not; neither is rectified."""
        return conv(net, x, filters, kernel, stride, batch_norm=behind, bias=False, activation=None)

    def block(net: Layers, x: Any, filters: int, stride: int, *, project: bool) -> Any:
        width = 4 * filters if bottlenecks else filters
        y = x if behind else net.batch_norm(x)
        shortcut = bare(net, y, width, 1, stride) if project else x
        if bottlenecks:
            y = conv(net, y, filters, 1, batch_norm=True)
            y = conv(net, y, filters, 3, stride, batch_norm=True)
            y = bare(net, y, width, 1)
        else:
            y = conv(net, y, filters, 3, stride, batch_norm=True)
            y = bare(net, y, width, 3)
        return net.relu(y + shortcut) if behind else y + shortcut

    def build(net: Layers, x: Any) -> Any:
        x = conv(net, x, 64, 7, 2, batch_norm=True) if behind else bare(net, x, 64, 7, 2)
        x = net.max_pool(x, 3, 2, padding="SAME")
        for group, blocks in enumerate(BLOCKS[depth]):
            for number in range(blocks):
                stride = 2 if group and not number else 1
                x = block(net, x, 64 << group, stride, project=not number)
        return net.global_average_pool(x if behind else net.batch_norm(x))

    return build
