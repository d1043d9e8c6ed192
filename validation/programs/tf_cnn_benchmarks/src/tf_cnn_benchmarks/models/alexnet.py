"""AlexNet for ImageNet and its small sister for CIFAR-10."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tf_cnn_benchmarks.layers import Layers


def alexnet(net: Layers, x: Any) -> Any:
    """The one-column AlexNet of Krizhevsky, "One weird trick for parallelizing convolutional neural
    networks", 2014 (arXiv:1404.5997): 64, 192, 384, 384, 256 filters, for 227 x 227 pixels."""
    x = net.conv(x, 64, 11, stride=4, padding="VALID")
    x = net.max_pool(x, 3, 2)
    x = net.conv(x, 192, 5)
    x = net.max_pool(x, 3, 2)
    x = net.conv(x, 384, 3)
    x = net.conv(x, 384, 3)
    x = net.conv(x, 256, 3)
    x = net.max_pool(x, 3, 2)
    x = net.flatten(x)
    x = net.dropout(net.dense(x, 4096, activation="relu"), 0.5)
    return net.dropout(net.dense(x, 4096, activation="relu"), 0.5)


def alexnet_cifar10(net: Layers, x: Any) -> Any:
    """The CIFAR-10 network of Krizhevsky's cuda-convnet (2012): two convolutions with local response
    normalisation (Krizhevsky, Sutskever, Hinton, NIPS 2012), then 384 and 192 units."""

    def norm(x: Any) -> Any:
        return net.local_response_norm(x, depth_radius=4, bias=1.0, alpha=0.001 / 9.0)

    x = net.conv(x, 64, 5)
    x = net.max_pool(x, 3, 2, padding="SAME")
    x = norm(x)
    x = net.conv(x, 64, 5)
    x = norm(x)
    x = net.max_pool(x, 3, 2, padding="SAME")
    x = net.flatten(x)
    x = net.dense(x, 384, activation="relu")
    return net.dense(x, 192, activation="relu")
