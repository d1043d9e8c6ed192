"""AlexNet and VGG in PyTorch, layer for layer those of tf_cnn_benchmarks, so that speeds can be compared."""

from __future__ import annotations

from torch import nn

CLASSES = 1001  # 1000 and the background, as tf_cnn_benchmarks has them
PIXELS = {"alexnet": 227, "vgg11": 224, "vgg16": 224}
_CONVOLUTIONS = {"vgg11": (1, 1, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3)}
_FILTERS = (64, 128, 256, 512, 512)


def _classifier(inputs: int) -> list[nn.Module]:
    return [
        nn.Flatten(),
        nn.Linear(inputs, 4096),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(4096, CLASSES),
    ]


def alexnet() -> nn.Module:
    """The one-column AlexNet of Krizhevsky, 2014 (arXiv:1404.5997), for 227 x 227 pixels."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 11, stride=4), nn.ReLU(), nn.MaxPool2d(3, 2)]
    layers += [nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)]
    for before, filters in ((192, 384), (384, 384), (384, 256)):
        layers += [nn.Conv2d(before, filters, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(3, 2), *_classifier(256 * 6 * 6))


def vgg(name: str) -> nn.Module:
    """VGG of Simonyan and Zisserman, 2014 (arXiv:1409.1556), for 224 x 224 pixels."""
    layers: list[nn.Module] = []
    before = 3
    for repeats, filters in zip(_CONVOLUTIONS[name], _FILTERS, strict=True):
        for _ in range(repeats):
            layers += [nn.Conv2d(before, filters, 3, padding=1), nn.ReLU()]
            before = filters
        layers.append(nn.MaxPool2d(2, 2))
    return nn.Sequential(*layers, *_classifier(512 * 7 * 7))


def network(name: str) -> nn.Module:
    """The network of this name (a key of PIXELS)."""
    return alexnet() if name == "alexnet" else vgg(name)
