"""`python -m …probe.train_keras STEPS`: a few steps of Keras 3 with TensorFlow, made distributed by DDL."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import ddl
import keras

from .training import CLASSES, SIDE, conclude, images


class Steps(keras.callbacks.Callback):  # type: ignore[misc]
    """The loss and the time of each."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self._began = 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Called by Keras."""
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Called by Keras; its loss is the mean of the epoch so far."""
        mean, number = float((logs or {})["loss"]), len(self.losses)
        self.losses.append(mean * (number + 1) - sum(self.losses))
        self.seconds.append(time.perf_counter() - self._began)


def _batches(steps: int) -> Iterator[Any]:
    for step in range(steps):
        yield images(ddl.rank(), step)


def main(steps: int) -> int:
    keras.utils.set_random_seed(1 + ddl.rank())
    model = keras.Sequential(
        [
            keras.layers.Input((SIDE, SIDE, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.003),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    recorder = Steps()
    callbacks = [ddl.DDLCallback(), recorder, ddl.DDLGlobalVariablesCallback()]
    model.fit(_batches(steps), steps_per_epoch=steps, epochs=1, callbacks=callbacks, verbose=0)
    conclude(recorder.losses, recorder.seconds, model.get_weights())
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
