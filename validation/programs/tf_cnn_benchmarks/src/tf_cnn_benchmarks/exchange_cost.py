"""What the exchange of gradients costs: steps with and without it, in turns, in one run.

A machine drifts by more over two runs than the exchange costs. Short blocks of steps that alternate within
one run, in the same processes with the same memory, see the same machine.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tf_cnn_benchmarks.workers import Workers

SHORTEST_BLOCK = 0.25
"""Seconds, so that its start, which all ranks make together, does not count; or a step, if that is longer."""


@dataclass
class ExchangeCost:
    """Images a second of all ranks: one of each pair of blocks, with the exchange and without it.

    steps: of each block. each_alone: those without it by rank, a list for each block.
    """

    steps: int
    exchanged: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    each_alone: list[list[float]] = field(default_factory=list)

    @property
    def shares(self) -> list[float]:
        """The speed with exchange over that without; one of each pair."""
        return [exchanged / other for exchanged, other in zip(self.exchanged, self.alone, strict=True)]

    @property
    def efficiency(self) -> float:
        """The median of the shares."""
        return statistics.median(self.shares)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The first and the third quartile of the shares; the same value twice where there is one."""
        first, third = np.quantile(self.shares, [0.25, 0.75])
        return float(first), float(third)

    def as_json(self) -> dict[str, Any]:
        return {
            "kept": self.efficiency,
            "quartiles": list(self.quartiles),
            "steps_of_a_block": self.steps,
            "images_per_sec": self.exchanged,
            "images_per_sec_without": self.alone,
            "rank_images_per_sec_without": [
                statistics.median(speeds) for speeds in zip(*self.each_alone, strict=True)
            ],
        }


def compare(
    workers: Workers, exchanged: Callable[[], Any], alone: Callable[[], Any], blocks: int, batch: int
) -> ExchangeCost:
    """Time `blocks` pairs of blocks of steps; which of a pair is first changes in turns.

    exchanged, alone: make one step of `batch` images on this rank. The speed of a block is the sum of the
    ranks' own. All ranks must call this.
    """
    alone()  # allocates the memory of its first run
    begun = time.perf_counter()
    exchanged()
    seconds = float(workers.mean(np.asarray([time.perf_counter() - begun]), "step_seconds")[0])
    cost = ExchangeCost(max(1, math.ceil(SHORTEST_BLOCK / seconds)))
    kinds = [(exchanged, cost.exchanged), (alone, cost.alone)]
    for _ in range(blocks):
        for step, speeds in kinds:
            workers.mean(np.zeros(1), "block_start")
            begun = time.perf_counter()
            for _ in range(cost.steps):
                step()
            each = np.zeros(workers.size)
            each[workers.rank] = cost.steps * batch / (time.perf_counter() - begun)
            each = np.asarray(workers.mean(each, "block_speed")) * workers.size
            speeds.append(float(each.sum()))
            if step is alone:
                cost.each_alone.append(each.tolist())
        kinds.reverse()
    return cost
