"""The small models: `trivial` measures everything but the model, `lenet` trains in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tf_cnn_benchmarks.layers import Layers


def trivial(net: Layers, x: Any) -> Any:
    """One hidden unit, then 4096: hardly any arithmetic, yet the gradient of a real classifier's last layer.

    It shows what input, launching and exchanging cost when the model costs nothing.
    """
    x = net.flatten(x)
    x = net.dense(x, 1, activation="relu")
    return net.dense(x, 4096, activation="relu")


def softmax_regression(net: Layers, x: Any) -> Any:
    """No hidden layer: the trivial model of the digits, where it still learns something.

    Convex and free of batch normalisation, so it is the model in which runs of different numbers of ranks
    can be compared number by number.
    """
    return net.flatten(x)


def lenet(net: Layers, x: Any) -> Any:
    """LeNet-5 of LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition",
    Proc. IEEE 86(11), 1998, for 32 x 32 pixels; rectifiers and max pooling in the place of its scaled tanh
    and trained subsampling, and every map of C3 connected to every map of S2, as is usual today.
    """
    x = net.conv(x, 6, 5, padding="VALID")
    x = net.max_pool(x, 2, 2)
    x = net.conv(x, 16, 5, padding="VALID")
    x = net.max_pool(x, 2, 2)
    x = net.conv(x, 120, 5, padding="VALID")
    x = net.flatten(x)
    return net.dense(x, 84, activation="relu")


def lenet5(net: Layers, x: Any) -> Any:
    """A wider LeNet for 28 x 28 pixels, as --model=lenet has for ImageNet: two convolutions of 5 x 5, each
    halved by max pooling, and 512 hidden units."""
    for filters in (32, 64):
        x = net.conv(x, filters, 5)
        x = net.max_pool(x, 2, 2)
    return net.dense(net.flatten(x), 512, activation="relu")
