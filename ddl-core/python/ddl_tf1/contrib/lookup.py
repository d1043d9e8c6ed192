"""tf.contrib.lookup: the tables, which TensorFlow still has in its sources."""

from __future__ import annotations

from typing import Any

from tensorflow.python.ops import lookup_ops

from ddl_tf1._facade import getattr_of

_NAMES = {
    "HashTable": "StaticHashTableV1",
    "MutableHashTable": "MutableHashTable",
    "MutableDenseHashTable": "DenseHashTable",
    **{
        name: name
        for name in (
            *("IdTableWithHashBuckets", "KeyValueTensorInitializer", "TextFileIdTableInitializer"),
            *("TextFileIndex", "TextFileInitializer", "TextFileStringTableInitializer"),
            *("index_table_from_file", "index_table_from_tensor", "index_to_string_table_from_file"),
            *("index_to_string_table_from_tensor", "LookupInterface"),
        )
    },
}
_missing = getattr_of("tensorflow.contrib.lookup", {})


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(lookup_ops, _NAMES[name])
    return _missing(name)
