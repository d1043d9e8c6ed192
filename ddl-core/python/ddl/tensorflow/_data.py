"""Disjoint data: each rank's part of a data set, equally long on all ranks.

Equally long, because a rank that makes one step more than the others would wait for them in vain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

import ddl

Remainder = Literal["drop", "repeat"]


def shard(data: Any, remainder: Remainder = "drop", *, reshuffle: int | None = None) -> Any:
    """This rank's part of a data set: every size()-th element, beginning with the rank()-th.

    Put it before `shuffle`, `map` and `batch`, so that a rank decodes only what it trains on. The elements
    must come in the same order on all ranks. With one rank the data are returned as they are.

    Args:
        data: A tf.data.Dataset, an array, or a tuple, list or dict of arrays (cut along the first axis).
        remainder: What to do with the last elements when their number is no multiple of size(): "drop"
            them, or "repeat" the first ones to fill it up. A dataset of unknown length can only be "drop".
        reshuffle: A seed, the same on all ranks: every epoch deals all elements out in another order, so
            that a rank sees other elements each time (Horovod leaves that to the script). The whole order is
            shuffled: an array by its indices, a dataset in a buffer of all its elements. No `shuffle` is
            needed behind it.

    Returns:
        The same kind as `data`, with `reshuffle` a tf.data.Dataset of single elements; as many on all ranks.

    Raises:
        ValueError: Fewer elements than ranks, arrays of different lengths, "repeat" or `reshuffle` of unknown
            or infinite length.
    """
    if remainder not in ("drop", "repeat"):
        raise ValueError(f"shard: remainder is {remainder!r}; it must be 'drop' or 'repeat'")
    size = ddl.size()
    if isinstance(data, tf.data.Dataset):
        if reshuffle is not None:
            data = _shuffled(data, reshuffle)
        return data if size == 1 else _shard_dataset(data, size, remainder)
    arrays = [np.asarray(array) for array in tf.nest.flatten(data)]
    lengths = sorted({len(array) for array in arrays})
    if len(lengths) != 1:
        raise ValueError(f"shard: the arrays have different lengths, {lengths}; they must have one")
    if reshuffle is not None:
        indices = _shuffled(tf.data.Dataset.range(lengths[0]), reshuffle)
        own_indices = indices if size == 1 else _shard_dataset(indices, size, remainder)
        tensors = [tf.convert_to_tensor(array) for array in arrays]
        return own_indices.map(
            lambda i: tf.nest.pack_sequence_as(data, [tf.gather(tensor, i) for tensor in tensors])
        )
    if size == 1:
        return data
    chosen = np.arange(_length(lengths[0], size, remainder))[ddl.rank() :: size] % lengths[0]
    return tf.nest.pack_sequence_as(data, [array[chosen] for array in arrays])


def per_rank_batch_size(global_batch_size: int) -> int:
    """The batch size of one rank, when all ranks together take `global_batch_size` elements a step.

    Raises:
        ValueError: It cannot be divided among the ranks.
    """
    size = ddl.size()
    if global_batch_size < size or global_batch_size % size != 0:
        raise ValueError(
            f"a global batch of {global_batch_size} cannot be divided equally among {size} ranks; take a "
            f"multiple of {size}"
        )
    return global_batch_size // size


def _length(elements: int, size: int, remainder: Remainder) -> int:
    if elements < size:
        raise ValueError(f"shard: {elements} elements are too few for {size} ranks, each needs one at least")
    return elements // size * size if remainder == "drop" else -(-elements // size) * size


def _shuffled(dataset: Any, seed: int) -> Any:
    elements = int(dataset.cardinality())
    if elements < 0:
        raise ValueError(
            "shard: reshuffle needs a dataset whose length is known and finite; tell it by "
            "tf.data.experimental.assert_cardinality"
        )
    with _no_global_seed():
        return dataset.shuffle(max(elements, 1), seed=seed, reshuffle_each_iteration=True)


@contextlib.contextmanager
def _no_global_seed() -> Iterator[None]:
    """TensorFlow mixes a shuffle's seed with that of tf.random.set_seed, which scripts make different by
    rank."""
    holder, name = (
        (context.context(), "_seed") if tf.executing_eagerly() else (tf.compat.v1.get_default_graph(), "seed")
    )
    saved = getattr(holder, name)
    setattr(holder, name, None)
    try:
        yield
    finally:
        setattr(holder, name, saved)


def _shard_dataset(dataset: Any, size: int, remainder: Remainder) -> Any:
    elements = int(dataset.cardinality())
    if elements == tf.data.INFINITE_CARDINALITY:
        return dataset.shard(size, ddl.rank())
    if elements != tf.data.UNKNOWN_CARDINALITY:
        length = _length(elements, size, remainder)
        if length > elements:
            dataset = dataset.concatenate(dataset.take(length - elements))
        return dataset.take(length).shard(size, ddl.rank())
    if remainder == "repeat":
        raise ValueError(
            "shard: a dataset of unknown length cannot be filled up; use remainder='drop', or tell its "
            "length by tf.data.experimental.assert_cardinality"
        )
    return dataset.window(size, drop_remainder=True).flat_map(_own_element)


def _own_element(*columns: Any) -> Any:
    """This rank's element of a window, which is as many consecutive elements as there are ranks."""
    structure = columns[0] if len(columns) == 1 else columns
    return tf.data.Dataset.zip(structure).skip(ddl.rank()).take(1)
