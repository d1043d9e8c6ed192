"""The learning rate of many ranks, in `fit`."""

from __future__ import annotations

import math
from typing import Any

import ddl
from ddl.keras._callbacks import Callback


class LearningRateWarmupCallback(Callback):
    """Raises the learning rate to that of one process times the number of ranks, during the first epochs.

    Put it before callbacks that change the learning rate themselves (ReduceLROnPlateau,
    LearningRateScheduler): after the last epoch of the warm-up this one leaves it alone. With one rank the
    learning rate is `learning_rate` from the start.

    It warms up once: where training goes on behind the warm-up, by `initial_epoch`, a BackupAndRestore or a
    second `fit`
    with the same callback, the rate stays what it was, such as one that ReduceLROnPlateau has lowered.
    Horovod's
    LearningRateWarmupCallback sets the full rate again.

    Args:
        learning_rate: The one that is right for a single process with its part of the batch.
        warmup_epochs: 0 starts with the full rate.
        multiplier: By default size(). For adaptive optimizers such as Adam its square root is common.
        steps_per_epoch: Where Keras does not know it (a generator); otherwise the rate would rise only once
            an epoch.
        verbose: 1 prints the rate that was reached, on rank 0.
    """

    def __init__(
        self,
        learning_rate: float,
        warmup_epochs: int = 5,
        multiplier: float | None = None,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__()
        if not (math.isfinite(learning_rate) and learning_rate > 0):
            raise ValueError(f"learning_rate is {learning_rate}; it must be a positive number")
        if warmup_epochs < 0:
            raise ValueError(f"warmup_epochs is {warmup_epochs}; it cannot be negative")
        self._base = learning_rate
        self._epochs = warmup_epochs
        self._factor = float(ddl.size() if multiplier is None else multiplier)
        self._steps = steps_per_epoch
        self._verbose = verbose
        self._epoch = 0
        self._done = False  # at the end of the warm-up, for good
        self._began = False  # whether an epoch of this training has begun

    def on_train_begin(self, logs: Any = None) -> None:
        """The next epoch is the first of this training."""
        self._began = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Sets the rate of the epoch's first batch; the full one when the warm-up is over."""
        self._epoch = epoch
        goes_on = not self._began and epoch > self._epochs and _iterations(self.model.optimizer) > 0
        self._began = True
        if goes_on:
            # The warm-up was over before: whoever lowered the rate since knows why.
            self._done = True
        if self._done:
            return
        if epoch < self._epochs:
            _set_learning_rate(self.model.optimizer, self._rate(epoch / self._epochs))
            return
        self._done = True
        _set_learning_rate(self.model.optimizer, self._rate(1.0))
        if self._verbose and ddl.rank() == 0:
            print(f"epoch {epoch}: learning rate {self._rate(1.0):g}", flush=True)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Sets the rate of the next batch."""
        steps = self._steps or self.params.get("steps")
        if not self._done and steps:
            progress = (self._epoch + (batch + 1) / steps) / self._epochs
            _set_learning_rate(self.model.optimizer, self._rate(min(progress, 1.0)))

    def _rate(self, progress: float) -> float:
        return self._base * (1.0 + (self._factor - 1.0) * progress)


def _iterations(optimizer: Any) -> int:
    """Updates the optimizer has made."""
    count = getattr(optimizer, "iterations", 0)
    if isinstance(count, int):
        return count
    try:
        return int(count.numpy())
    except (AttributeError, NotImplementedError):
        # a variable in a TF1 graph
        from tf_keras import backend

        return int(backend.get_value(count))


def _set_learning_rate(optimizer: Any, value: float) -> None:
    present = optimizer.learning_rate
    # A legacy optimizer would replace its schedule; the others refuse.
    is_schedule = callable(present) and hasattr(present, "get_config")
    try:
        if not is_schedule:
            optimizer.learning_rate = value
            return
    except TypeError:
        pass
    raise ValueError(
        "LearningRateWarmupCallback: the optimizer has a schedule, which sets the learning rate by itself; "
        "compile with a number, or leave this callback out and put ddl.size() and a warm-up into the schedule"
    )
