"""Gradient accumulation in `fit`."""

from __future__ import annotations

import functools
from typing import Any


def accumulate_gradients(optimizer: Any, backward_passes_per_step: int) -> Any:
    """Lets an optimizer update once in `backward_passes_per_step` batches, by the mean of their gradients.

    Between two updates nothing is communicated, so the network is used so much less, and a step takes a
    batch that does not fit into memory at once. Without a launcher it accumulates as well.

    Args:
        optimizer: Of Keras 3 (not yet used) or tf_keras. It is changed.
        backward_passes_per_step: 1 changes nothing.

    Returns:
        The optimizer.

    Raises:
        ValueError: The number is below 1, or a Keras 3 optimizer has been used or accumulates already.
    """
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}; it must be 1 or more")
    if backward_passes_per_step == 1:
        return optimizer
    if type(optimizer).__module__.split(".")[0] == "tf_keras":
        from ddl.tensorflow import GradientAccumulator

        update = functools.partial(type(optimizer).apply_gradients, optimizer)
        accumulator = GradientAccumulator(backward_passes_per_step, update)

        def apply_gradients(grads_and_vars: Any, *_: Any, **__: Any) -> Any:
            return accumulator.apply_gradients(grads_and_vars)

        optimizer.apply_gradients = apply_gradients
        return optimizer
    # With loss scaling it is the inner optimizer that accumulates, the gradients that did not overflow.
    accumulating = getattr(optimizer, "inner_optimizer", None) or optimizer
    if optimizer.built or accumulating.gradient_accumulation_steps:
        raise ValueError(
            "accumulate_gradients: the optimizer has been used or accumulates already; take a new one"
        )
    accumulating.gradient_accumulation_steps = backward_passes_per_step
    return optimizer
