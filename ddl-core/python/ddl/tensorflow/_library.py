"""Loads the operator library, libddl_tf.so, which lies beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

_LIBRARY = Path(__file__).with_name("libddl_tf.so")


def _load() -> Any:
    if not _LIBRARY.exists():
        raise ImportError(
            f"DDL's TensorFlow operators are missing: {_LIBRARY} does not exist; "
            "install the package ddl-tensorflow"
        )
    try:
        return tf.load_op_library(str(_LIBRARY))
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
        raise ImportError(
            f"DDL's TensorFlow operators {_LIBRARY} do not load into TensorFlow {tf.__version__}: "
            f"{error.message}; install the ddl-tensorflow that was built for this TensorFlow"
        ) from error


#: The generated wrappers of the operators: init, bcast, all_reduce, all_reduce_n.
operators = _load()
