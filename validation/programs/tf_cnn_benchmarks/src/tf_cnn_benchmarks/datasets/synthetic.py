"""Images that cost nothing: what remains is the speed of the model and of the exchange."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.datasets.sizes import Sizes
from tf_cnn_benchmarks.datasets.spec import DEFAULT_OPTIONS, Batch, InputOptions, Shard

v1 = tf.compat.v1


class Synthetic:
    """One random batch, made once on the device and used in every step. Labels follow from nothing."""

    synthetic = True

    def __init__(self, name: str, sizes: Sizes) -> None:
        self.title = f"{name} (synthetic)"
        self.classes = sizes.classes
        self.channels = sizes.channels
        self._sizes = sizes

    def examples(self, *, training: bool) -> int:
        return self._sizes.train if training else self._sizes.validation

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
        shape = [shard.batch, image_size, image_size, self.channels]
        seeds = [seed, shard.rank]

        def local(name: str, value: Any) -> Any:
            # A local variable: made on the device, never saved, and no constant that folding could eat.
            return v1.Variable(
                value,
                trainable=False,
                use_resource=True,
                name=name,
                collections=[v1.GraphKeys.LOCAL_VARIABLES],
            )

        images = local("synthetic_images", tf.random.stateless_uniform(shape, seeds, -1.0, 1.0))
        labels = local(
            "synthetic_labels",
            tf.random.stateless_uniform([shard.batch], seeds, 0, self.classes, dtype=tf.int32),
        )
        return Batch(images.read_value(), labels.read_value())
