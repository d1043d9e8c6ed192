"""The data and the schedule that every way of training has in common.

1797 real images of handwritten digits come with scikit-learn. Every fifth is for evaluation (360), the
others are for training (1437), as in tf_cnn_benchmarks with --data_name=digits; they are enlarged to LeNet's
32 x 32 pixels.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

PIXELS, CLASSES = 32, 10
#: Images and their labels.
Batches = Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]
MOMENTUM = 0.9
"""Nesterov's, as of tf_cnn_benchmarks."""


@dataclass(frozen=True)
class Schedule:
    """batch: images of each worker and step. epochs: passes over all training images, by all workers
    together. rate: the learning rate."""

    batch: int
    epochs: int
    rate: float

    def steps(self, workers: int) -> int:
        """Steps of each worker in an epoch."""
        return max(1, training_images() // (self.batch * workers))


def parser(text: str | None) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=text)
    options.add_argument("--batch-size", type=int, default=32, help="images of each worker and step (32)")
    options.add_argument("--epochs", type=int, default=10, help="passes over all training images (10)")
    options.add_argument("--learning-rate", type=float, default=0.05)
    return options


def schedule_of(options: argparse.Namespace) -> Schedule:
    return Schedule(options.batch_size, options.epochs, options.learning_rate)


def training_images() -> int:
    return len(load_digits().target) * 4 // 5


@functools.cache
def load(*, training: bool) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images (count, 32, 32, 1) of -1 to 1, and their labels."""
    bunch = load_digits()
    evaluation = np.arange(len(bunch.target)) % 5 == 0
    chosen = ~evaluation if training else evaluation
    images = np.asarray(bunch.images[chosen], np.float32)[..., None] / 8.0 - 1.0
    factor = PIXELS // images.shape[1]
    return images.repeat(factor, axis=1).repeat(factor, axis=2), bunch.target[chosen].astype(np.int64)


def batches(schedule: Schedule, worker: int, workers: int, epoch: int) -> Batches:
    """A worker's batches of an epoch. All workers shuffle alike, and each takes a part of its own."""
    images, labels = load(training=True)
    order = np.random.default_rng(epoch).permutation(len(labels))[worker::workers]
    for step in range(schedule.steps(workers)):
        taken = order[step * schedule.batch : (step + 1) * schedule.batch]
        yield images[taken], labels[taken]


def tell_at_once(line: str) -> None:
    print(line, flush=True)


class Clock:
    """Counts what is trained, and prints the lines that tf_cnn_benchmarks prints. tell: prints a line; only
    where the worker is the one that speaks.
    """

    def __init__(self, speaks: bool, tell: Callable[[str], None] = tell_at_once) -> None:
        self._tell = tell if speaks else lambda _: None
        self._seconds, self._images = 0.0, 0
        self._tell("Running warm up")

    def train(self, steps: Callable[[], int]) -> None:
        """Time `steps`, which returns how many images all workers have trained in it."""
        start = time.perf_counter()
        self._images += steps()
        self._seconds += time.perf_counter() - start

    def train_epochs(self, epochs: int, steps: Callable[[int], int], accuracy: Callable[[], float]) -> None:
        """Train so many epochs with an evaluation after each. steps: of the epoch with this number."""
        for epoch in range(epochs):
            self.train(functools.partial(steps, epoch))
            self.accuracy(accuracy())
        self.end()

    def accuracy(self, value: float) -> None:
        self._tell(f"Accuracy @ 1 = {value:.4f}")

    def end(self) -> None:
        self._tell(f"trained images: {self._images}")
        self._tell(f"total images/sec: {self._images / self._seconds:.2f}")
