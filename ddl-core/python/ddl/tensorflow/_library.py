"""Loads the operator library, libddl_tf.so, which lies beside this file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import load_library

from ddl import _launch_state

_LIBRARY = Path(__file__).with_name("libddl_tf.so")


def _load() -> Any:
    if not _LIBRARY.exists():
        raise ImportError(
            f"DDL's TensorFlow operators are missing: {_LIBRARY} does not exist; "
            "install the package ddl-tensorflow"
        )
    try:
        loaded = tf.load_op_library(str(_LIBRARY))
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
        raise ImportError(
            f"DDL's TensorFlow operators {_LIBRARY} do not load into TensorFlow {tf.__version__}: "
            f"{error.message}; install the ddl-tensorflow that was built for this TensorFlow"
        ) from error
    if hasattr(loaded, "all_reduce_n"):
        return loaded
    # The program has loaded it by another name before. TensorFlow gives operators to the first name only; the
    # module that it has made of them is among all modules, under a hash.
    for module in list(sys.modules.values()):
        if getattr(module, "_IS_TENSORFLOW_PLUGIN", False) and hasattr(module, "all_reduce_n"):
            return module
    raise ImportError(f"TensorFlow has loaded {_LIBRARY} already, and no operators of it are left")


def _load_by_any_name(load: Callable[[str], Any]) -> Callable[[str], Any]:
    """A `tf.load_op_library` that knows this library by every link to it, such as WML CE's ddl_MDR.so."""

    def load_op_library(library_filename: str) -> Any:
        if os.path.realpath(library_filename) == os.path.realpath(_LIBRARY):
            return operators
        return load(library_filename)

    load_op_library.__doc__ = load.__doc__
    return load_op_library


#: The generated wrappers of the operators: init, bcast, all_reduce, all_reduce_n.
operators = _load()
load_library.load_op_library = _load_by_any_name(load_library.load_op_library)
tf.load_op_library = tf.compat.v1.load_op_library = load_library.load_op_library
# The operator init starts DDL without Python.
_launch_state.finalise_at_exit()
