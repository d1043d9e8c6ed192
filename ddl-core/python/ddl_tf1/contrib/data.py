"""tf.contrib.data, which became tf.data and tf.data.experimental."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from ddl_tf1._facade import getattr_of

_OF_DATA = (
    *("Dataset", "FixedLengthRecordDataset", "Iterator", "TFRecordDataset", "TextLineDataset"),
    *("make_initializable_iterator", "make_one_shot_iterator"),
)
_GONE = {
    "read_batch_features": "use make_batched_features_dataset",
    "sliding_window_batch": "use Dataset.window",
}


def batch_and_drop_remainder(batch_size: Any) -> Callable[[Any], Any]:
    """Makes batches, without the last one if it is not full; for Dataset.apply."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
    batch_size: Any, padded_shapes: Any, padding_values: Any = None
) -> Callable[[Any], Any]:
    """Makes padded batches, without the last one if it is not full; for Dataset.apply."""
    return lambda dataset: dataset.padded_batch(
        batch_size, padded_shapes, padding_values, drop_remainder=True
    )


_missing = getattr_of("tensorflow.contrib.data", _GONE)


def __getattr__(name: str) -> Any:
    for module in (tf.data if name in _OF_DATA else tf.data.experimental,):
        if hasattr(module, name):
            return getattr(module, name)
    return _missing(name)
