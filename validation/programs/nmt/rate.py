"""The learning rate of an epoch."""

from __future__ import annotations

from collections.abc import Callable

_HALVINGS = 4


def halved_at_the_end(full: float, epochs: int) -> Callable[[int, float], float]:
    """A schedule for Keras' LearningRateScheduler: the rate is halved four times in the last third.

    Args:
        full: The rate after the warm-up.
        epochs: All of them.

    Returns:
        A function of the epoch and of the present rate, which is left alone before the last third: it may
        be the warm-up's.
    """
    begin = epochs - epochs // 3

    def rate(epoch: int, present: float) -> float:
        if epoch < begin:
            return present
        halvings = 1 + (epoch - begin) * _HALVINGS // (epochs - begin)
        return full * 0.5 ** min(halvings, _HALVINGS)

    return rate
