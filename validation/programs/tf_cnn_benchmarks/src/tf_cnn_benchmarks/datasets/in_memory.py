"""Data sets that fit in memory, served in an order that does not depend on the number of ranks.

A step's *global* batch is fixed by the seed and the step alone; each rank takes its slice of it. So any
number of ranks that share a global batch see the same images in the same step, augmented the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tf_cnn_benchmarks.datasets.pipeline import ahead
from tf_cnn_benchmarks.datasets.spec import DEFAULT_OPTIONS, Batch, InputOptions, Shard
from tf_cnn_benchmarks.errors import BenchmarkError

v1 = tf.compat.v1

Augment = Callable[[Any, Any], Any]
"""(images N x H x W x C, uniform numbers in [0, 1) of shape N x 3) -> images."""

SHUFFLE_ROUNDS = 8
"""Rounds of the block cipher that permutes the places; TensorFlow's default of 4 leaves some order."""


def ordered_batches(
    images: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    shard: Shard,
    prepare: Callable[[Any], Any],
    *,
    training: bool,
    seed: int,
    threads: int,
    options: InputOptions = DEFAULT_OPTIONS,
    augment: Augment | None = None,
) -> Batch:
    """Batches of `images` (N x H x W x C), float32 after `prepare`.

    The arrays are fed when the iterator starts, so that neither the graph nor a checkpoint holds them.
    """
    image_feed = v1.placeholder(tf.as_dtype(images.dtype), images.shape, name="all_images")
    label_feed = v1.placeholder(tf.int32, labels.shape, name="all_labels")
    start = v1.placeholder_with_default(tf.constant(0, tf.int64), [], name="start_step")
    count = len(images)
    global_batch = shard.batch * shard.size
    if training and global_batch > count:
        raise BenchmarkError(
            f"a global batch of {global_batch} images is more than the {count} training images there are; "
            "lower --batch_size or the number of ranks"
        )

    def load(step: Any) -> tuple[Any, Any]:
        if training:
            places, numbers = _shuffled(step, count, global_batch, shard, seed)
            chosen, labels = tf.gather(image_feed, places), tf.gather(label_feed, places)
            batch = prepare(chosen)
            return (augment(batch, numbers) if augment else batch), labels
        places = step * global_batch + shard.rank * shard.batch + tf.range(shard.batch, dtype=tf.int64)
        inside = places < count
        places = tf.where(inside, places, tf.zeros_like(places))
        labels = tf.where(inside, tf.gather(label_feed, places), -tf.ones([shard.batch], tf.int32))
        return prepare(tf.gather(image_feed, places)), labels

    stop = tf.constant(np.iinfo(np.int64).max if training else -(-count // global_batch), tf.int64)
    steps = tf.data.Dataset.range(start, stop)
    data = steps.map(load, num_parallel_calls=1, deterministic=True)
    iterator = v1.data.make_initializable_iterator(ahead(data, options, threads=threads))
    batch_images, batch_labels = iterator.get_next()
    batch_images.set_shape([shard.batch, *batch_images.shape[1:]])
    return Batch(
        batch_images, batch_labels, iterator.initializer, start, {image_feed: images, label_feed: labels}
    )


def _shuffled(step: Any, count: int, global_batch: int, shard: Shard, seed: int) -> tuple[Any, Any]:
    """Where this rank's images of a step are, and each one's random numbers for augmentation.

    The stream of images runs through the epochs without a gap; each epoch has a permutation of its own, in
    which one place is found without making the others.
    """
    stream = step * global_batch + shard.rank * shard.batch + tf.range(shard.batch, dtype=tf.int64)
    epochs = stream // count
    seeds = tf.stack(
        [tf.fill([shard.batch], tf.constant(seed, tf.int64)), epochs, tf.zeros_like(epochs)], axis=1
    )
    last = tf.constant(count - 1, tf.int64)
    # The public wrapper widens one seed for all; here each image brings its epoch's.
    places = tf.raw_ops.RandomIndexShuffle(
        index=stream - epochs * count, seed=seeds, max_index=last, rounds=SHUFFLE_ROUNDS
    )
    # Another stream than the order's, and the whole global batch's, of which this rank takes its rows.
    own_seed = tf.stack([tf.constant(seed + 1, tf.int64), step])
    numbers = tf.random.stateless_uniform([global_batch, 3], own_seed)
    return places, numbers[shard.rank * shard.batch : (shard.rank + 1) * shard.batch]
