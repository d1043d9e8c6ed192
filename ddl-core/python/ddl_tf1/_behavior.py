"""Makes TensorFlow behave as version 1, once it is imported."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def switch(tensorflow: ModuleType) -> None:
    """Switches eager execution, resource variables and the rest of TensorFlow 2's behaviour off."""
    v1: Any = tensorflow.compat.v1
    before = v1.logging.get_verbosity()
    # It warns that this is not meant to last.
    v1.logging.set_verbosity(v1.logging.ERROR)
    try:
        v1.disable_v2_behavior()
    finally:
        v1.logging.set_verbosity(before)
