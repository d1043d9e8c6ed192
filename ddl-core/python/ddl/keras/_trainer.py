"""What `fit` and `evaluate` do by themselves in a distributed job.

`fit` begins with rank 0's variables on all ranks, also those that no gradient reaches: moving averages of a
batch
normalisation, and an optimizer's learning rate. `evaluate` returns figures of all ranks where it is given a
DDLCallback.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import ddl
from ddl._updates import update


def _distributed() -> bool:
    return bool(ddl.is_initialized()) and ddl.size() > 1


def integrate(model: type, *, broadcasts: bool = True) -> None:
    """Hooks `fit` and `evaluate` of a Model class, of Keras 3 or tf_keras. broadcasts: variables can be
    broadcast."""
    if broadcasts:
        _hook_fit(model)
    _hook_evaluate(model)


def _hook_fit(model: type) -> None:
    from ddl.keras._callbacks import DDLGlobalVariablesCallback

    original = model.fit  # type: ignore[attr-defined]

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not update.inside and _distributed() and _broadcasts_by_itself():
            callbacks = kwargs.get("callbacks")
            # A container has been set up for this training by the caller; positional, they are the sixth of
            # `fit`.
            if callbacks is None and len(args) <= _POSITION_OF_CALLBACKS:
                kwargs["callbacks"] = [DDLGlobalVariablesCallback()]
            elif isinstance(callbacks, list | tuple) and not any(
                isinstance(callback, DDLGlobalVariablesCallback) for callback in callbacks
            ):
                kwargs["callbacks"] = [*callbacks, DDLGlobalVariablesCallback()]
        return original(self, *args, **kwargs)

    model.fit = fit  # type: ignore[attr-defined]


#: fit(x, y, batch_size, epochs, verbose, callbacks, ...), in both libraries
_POSITION_OF_CALLBACKS = 5


def _broadcasts_by_itself() -> bool:
    """The switch of ddl.tensorflow, where that is in use."""
    import sys

    variables = sys.modules.get("ddl.tensorflow._variables")
    return variables is None or bool(variables.broadcast_enabled())


def _hook_evaluate(model: type) -> None:
    from ddl.keras._callbacks import DDLCallback

    original = model.evaluate  # type: ignore[attr-defined]

    @functools.wraps(original)
    def evaluate(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        callbacks = kwargs.get("callbacks")
        callback_list = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
        # Within `fit` it is a container, and DDLCallback averages at the end of the epoch.
        if not _distributed() or not any(isinstance(callback, DDLCallback) for callback in callback_list):
            return result
        return _averaged(result)

    model.evaluate = evaluate  # type: ignore[attr-defined]


def _averaged(result: Any) -> Any:
    """What `evaluate` returns: a number, a list of them, or a dict."""
    names = sorted(result) if isinstance(result, dict) else []
    values = [result[name] for name in names] if names else list(np.atleast_1d(result))
    local_values = np.array([float(value) for value in values], np.float64)
    label = f"metrics of evaluate: {', '.join(names) or len(values)}"
    averages = ddl.allreduce(local_values, op="avg", name=label).tolist()
    if isinstance(result, dict):
        return dict(zip(names, averages, strict=True))
    return averages if isinstance(result, list) else averages[0]
