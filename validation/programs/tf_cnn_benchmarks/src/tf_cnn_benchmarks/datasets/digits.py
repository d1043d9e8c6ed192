"""scikit-learn's digits: 1797 real grey images of 8 x 8 pixels that need no download."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_cnn_benchmarks.datasets.in_memory import ordered_batches
from tf_cnn_benchmarks.datasets.spec import DEFAULT_OPTIONS, Batch, InputOptions, Shard
from tf_cnn_benchmarks.errors import BenchmarkError

PIXELS = 8
WHITE = 16.0
VALIDATION_EVERY = 5


class Digits:
    """Every fifth image is for validation: 1437 to train on, 360 to evaluate."""

    classes = 10
    channels = 1
    synthetic = False
    title = "digits"

    def __init__(self) -> None:
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise BenchmarkError(
                f"--data_name=digits needs scikit-learn ({error}); install it: `conda install scikit-learn`"
            ) from None
        bunch = load_digits()
        self._images = np.asarray(bunch.images, np.float32)[..., None]
        self._labels = np.asarray(bunch.target, np.int32)
        self._is_validation = np.arange(len(self._labels)) % VALIDATION_EVERY == 0

    def _chosen(self, training: bool) -> Any:
        return ~self._is_validation if training else self._is_validation

    def examples(self, *, training: bool) -> int:
        return int(self._chosen(training).sum())

    def batches(
        self,
        shard: Shard,
        image_size: int,
        *,
        training: bool,
        seed: int,
        threads: int,
        options: InputOptions = DEFAULT_OPTIONS,
    ) -> Batch:
        if image_size % PIXELS:
            raise BenchmarkError(f"digits are enlarged to multiples of {PIXELS} pixels, not to {image_size}")
        factor = image_size // PIXELS

        def prepare(images: Any) -> Any:
            images = images * (2.0 / WHITE) - 1.0
            return tf.repeat(tf.repeat(images, factor, axis=1), factor, axis=2) if factor > 1 else images

        chosen = self._chosen(training)
        return ordered_batches(
            self._images[chosen],
            self._labels[chosen],
            shard,
            prepare,
            training=training,
            seed=seed,
            threads=threads,
            options=options,
        )
