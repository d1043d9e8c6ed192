"""A rank that trains ResNet-20 (He et al. 2015, arXiv:1512.03385, for 32 x 32 pixels) on random pictures,
and prints the part of its time that the comparison of the ranks' weights takes, as a line of JSON.

    ddlrun -np 2 python drift_share.py keras|torch STEPS BATCH
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import ddl
import ddl_drift
import numpy as np

FILTERS = (16, 32, 64)
WARMUP = 3


class Clock:
    """The time within some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def measure(self, owner: Any, name: str) -> None:
        """Counts the calls of a method from now on."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def timed(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - start

        setattr(owner, name, timed)


def keras_steps(batch: int) -> Callable[[], object]:
    """Returns a function that makes a step of Keras 3 on TensorFlow."""
    import keras

    layers = keras.layers

    def block(x: Any, filters: int, stride: int) -> Any:
        y = layers.Conv2D(filters, 3, stride, "same", use_bias=False)(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.BatchNormalization()(layers.Conv2D(filters, 3, 1, "same", use_bias=False)(y))
        if stride != 1:
            x = layers.BatchNormalization()(layers.Conv2D(filters, 1, stride, use_bias=False)(x))
        return layers.ReLU()(layers.Add()([x, y]))

    inputs = layers.Input((32, 32, 3))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(16, 3, 1, "same", use_bias=False)(inputs)))
    for stage, filters in enumerate(FILTERS):
        for number in range(3):
            x = block(x, filters, 2 if stage and not number else 1)
    outputs = layers.Dense(10)(layers.GlobalAveragePooling2D()(x))
    model = keras.Model(inputs, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    random = np.random.default_rng(ddl.rank())
    images, labels = random.random((batch, 32, 32, 3), np.float32), random.integers(0, 10, batch)
    return lambda: model.train_on_batch(images, labels)


def torch_steps(batch: int) -> Callable[[], object]:
    """Returns a function that makes a step of DistributedDataParallel."""
    import torch
    import torch.distributed
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, before: int, filters: int, stride: int) -> None:
            super().__init__()
            self.main = nn.Sequential(
                *(nn.Conv2d(before, filters, 3, stride, 1, bias=False), nn.BatchNorm2d(filters), nn.ReLU()),
                *(nn.Conv2d(filters, filters, 3, 1, 1, bias=False), nn.BatchNorm2d(filters)),
            )
            self.short = nn.Identity()
            if stride != 1:
                self.short = nn.Sequential(
                    nn.Conv2d(before, filters, 1, stride, bias=False), nn.BatchNorm2d(filters)
                )

        def forward(self, x: Any) -> Any:
            return torch.relu(self.main(x) + self.short(x))

    torch.distributed.init_process_group("ddl")
    stages: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    before = 16
    for stage, filters in enumerate(FILTERS):
        for number in range(3):
            stages.append(Block(before, filters, 2 if stage and not number else 1))
            before = filters
    stages += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*stages))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.rand(batch, 3, 32, 32), torch.randint(0, 10, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def main() -> None:
    framework, steps, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    step = (keras_steps if framework == "keras" else torch_steps)(batch)
    clock = Clock()
    clock.measure(ddl_drift.Watch, "updated")
    start = 0.0
    for number in range(WARMUP + steps):
        if number == WARMUP:
            # The comparisons after the first updates count, too; what the first steps compile does not.
            start = time.perf_counter()
        step()
    seconds = time.perf_counter() - start
    if ddl.rank() == 0:
        figures = {"step_s": seconds / steps, "share": clock.seconds / seconds}
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
