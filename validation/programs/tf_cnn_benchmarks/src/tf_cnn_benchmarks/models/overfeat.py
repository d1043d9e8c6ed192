"""OverFeat of Sermanet, Eigen, Zhang, Mathieu, Fergus, LeCun, "OverFeat: integrated recognition, localization
and detection using convolutional networks", 2013 (arXiv:1312.6229)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tf_cnn_benchmarks.layers import Layers


def overfeat(net: Layers, x: Any) -> Any:
    """The fast model (table 1) for 231 x 231 pixels: AlexNet with more filters, without normalisation, with
    pooling windows that do not overlap. Dropout in the fully connected layers."""
    x = net.conv(x, 96, 11, stride=4, padding="VALID")
    x = net.max_pool(x, 2, 2)
    x = net.conv(x, 256, 5, padding="VALID")
    x = net.max_pool(x, 2, 2)
    x = net.conv(x, 512, 3)
    x = net.conv(x, 1024, 3)
    x = net.conv(x, 1024, 3)
    x = net.max_pool(x, 2, 2)
    x = net.flatten(x)
    x = net.dropout(net.dense(x, 3072, activation="relu"), 0.5)
    return net.dropout(net.dense(x, 4096, activation="relu"), 0.5)
