"""What the step lines say about speed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONSISTENT_WITH_NORMAL = 1.4826
"""Makes the median absolute deviation of normally distributed values equal their standard deviation."""


@dataclass(frozen=True)
class Speed:
    """Images a second of one process: the mean, the mean's standard error, and the steps' jitter."""

    mean: float
    uncertainty: float
    jitter: float


def speed(step_seconds: Sequence[float], batch: int, newest_share: float | None = None) -> Speed:
    """The speed over all steps so far, each of `batch` images and `step_seconds[i]` seconds.

    mean: images over the mean time of a step; uncertainty: the standard deviation of the steps' speeds over
    the square root of their number; jitter: 1.4826 times the median absolute deviation of the speeds, which
    a few slow steps do not disturb. At least one step. With `newest_share` the mean time is an exponentially
    weighted one, to which the newest step contributes that share against all before it.
    """
    times = np.asarray(step_seconds, dtype=np.float64)
    speeds = batch / times
    mean = times.mean()
    if newest_share:
        weights = np.power(1.0 - newest_share, np.arange(len(times) - 1, -1, -1))
        mean = np.average(times, weights=weights)
    return Speed(
        mean=float(batch / mean),
        uncertainty=float(speeds.std() / math.sqrt(len(speeds))),
        jitter=float(CONSISTENT_WITH_NORMAL * np.median(np.abs(speeds - np.median(speeds)))),
    )


def total_speed(workers: int, steps: int, batch: int, elapsed: float) -> float:
    """Images a second of all processes together over the whole timed stretch of `elapsed` seconds."""
    return workers * steps * batch / elapsed
