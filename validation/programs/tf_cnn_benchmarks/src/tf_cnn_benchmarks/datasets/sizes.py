"""Classes, channels and official sizes of the known data sets. ImageNet's label 0 stands for background."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    classes: int
    channels: int
    train: int
    validation: int


IMAGENET = Sizes(classes=1001, channels=3, train=1_281_167, validation=50_000)
CIFAR10 = Sizes(classes=10, channels=3, train=50_000, validation=10_000)
