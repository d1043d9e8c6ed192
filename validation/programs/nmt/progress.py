"""What a training says while it goes on, on rank 0."""

from __future__ import annotations

import math
import time
from collections.abc import MutableMapping
from typing import Any

import keras

from .batches import TrainingBatches


class Progress(keras.callbacks.Callback):  # type: ignore[misc]
    """Prints a line every so many steps, and one at the end of each epoch.

    Words are counted on both sides, padding left out. A perplexity is of one word of the translations.

    Args:
        batches: Tells how many words a step has.
        steps: Of an epoch.
        every: Steps between two lines.
        train_words, dev_words: Mean length of a translation to train on, and to follow the training with.
    """

    def __init__(
        self, batches: TrainingBatches, steps: int, every: int, train_words: float, dev_words: float
    ) -> None:
        super().__init__()
        self._batches, self._steps, self._every = batches, steps, every
        self._train_words, self._dev_words = train_words, dev_words
        self._epoch = self._words = self._epoch_words = 0
        self._began = self._last = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Called by Keras."""
        self._epoch = epoch
        self._words = self._epoch_words = 0
        self._began = self._last = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Called by Keras."""
        self._words += self._batches.words_of(self._epoch * self._steps + batch)
        if (batch + 1) % self._every and batch + 1 != self._steps:
            return
        now = time.perf_counter()
        self._epoch_words += self._words
        loss = (logs or {}).get("loss", math.nan)
        print(
            f"epoch {self._epoch + 1} step {batch + 1}/{self._steps}  loss {loss:.3f}  "
            f"{self._words / (now - self._last):.0f} words/s",
            flush=True,
        )
        self._words, self._last = 0, now

    def on_epoch_end(self, epoch: int, logs: MutableMapping[str, Any] | None = None) -> None:
        """Called by Keras."""
        logs = logs or {}
        loss, dev_loss = logs["loss"], logs["val_loss"]
        logs["perplexity"] = perplexity(loss, self._train_words)
        logs["dev_perplexity"] = perplexity(dev_loss, self._dev_words)
        logs["words_per_second"] = self._epoch_words / (self._last - self._began)
        rate = float(self.model.optimizer.learning_rate)
        print(
            f"epoch {epoch + 1}  loss {loss:.4f}  perplexity {logs['perplexity']:.2f}  "
            f"dev loss {dev_loss:.4f}  dev perplexity {logs['dev_perplexity']:.2f}  "
            f"{logs['words_per_second']:.0f} words/s  rate {rate:.3g}  "
            f"{time.perf_counter() - self._began:.1f} s",
            flush=True,
        )


def perplexity(loss: float, length: float) -> float:
    """Perplexity of a word, where `loss` is that of a sentence of `length` words on average."""
    return math.exp(min(loss / length, 700.0))
