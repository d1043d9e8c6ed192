"""XLA cannot compile a training step that communicates."""

from __future__ import annotations

import warnings

import ddl


def warn_not_compiled() -> None:
    """Says that the user's wish for XLA was not followed; once a job, not once a rank."""
    if ddl.rank() != 0:
        return
    warnings.warn(
        "jit_compile=True was replaced by False: XLA cannot compile a training step whose gradients DDL "
        "averages. Put jit_compile=True on tf.functions that the model calls instead.",
        stacklevel=4,
    )
