"""What TensorFlow's updates compare between the ranks.

Every all-reduce of gradients carries a digest of its variables' names, so that ranks which differ never add
up different things. A digest only says that they differ; `ddl._agreement` finds the names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ddl import _agreement


def describe_gradient(gradient: Any) -> str:
    """What ranks must agree on about a gradient, besides its variable."""
    if gradient is None:
        return "no gradient"
    return "a sparse gradient" if isinstance(gradient, tf.IndexedSlices) else "a gradient"


def check_same_variables(names: Sequence[str], gradients: Sequence[str], where: str) -> None:
    """Collective: compares what this rank trains with what the others do.

    Args:
        names: The variables, in the order of the update.
        gradients: `describe_gradient` of each.
        where: For the error.

    Raises:
        tf.errors.InvalidArgumentError: On every rank, with the variables in which the ranks differ.
    """
    remedy = " (for one that a rank does not need, tf.zeros_like(variable))"
    error = _agreement.difference(names, gradients, where, remedy)
    if error is not None:
        raise tf.errors.InvalidArgumentError(None, None, error)
