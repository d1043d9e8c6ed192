"""What `fit` and `evaluate` do by themselves in a distributed job.

`fit` begins with rank 0's variables on all ranks, also those that no gradient reaches: moving averages of a
batch
normalisation, and an optimizer's learning rate. `evaluate` returns figures of all ranks where it is given a
DDLCallback.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import ddl_drift
import numpy as np

import ddl
from ddl import _drift
from ddl._updates import update
from ddl.keras._callbacks import Callback


def _distributed() -> bool:
    return bool(ddl.is_initialized()) and ddl.size() > 1


def integrate(model: type, *, broadcasts: bool = True) -> None:
    """Hooks `fit` and `evaluate` of a Model class, of Keras 3 or tf_keras. broadcasts: variables can be
    broadcast."""
    if broadcasts:
        _hook_fit(model)
        _hook_train_on_batch(model)
    _hook_evaluate(model)


def _hook_fit(model: type) -> None:
    original = model.fit  # type: ignore[attr-defined]

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        if update.inside or not _distributed():
            return original(self, *args, **kwargs)
        if len(args) > _POSITION_OF_CALLBACKS:
            callbacks = _with_own(args[_POSITION_OF_CALLBACKS])
            args = (*args[:_POSITION_OF_CALLBACKS], callbacks, *args[_POSITION_OF_CALLBACKS + 1 :])
        else:
            kwargs["callbacks"] = _with_own(kwargs.get("callbacks"))
        return original(self, *args, **kwargs)

    model.fit = fit  # type: ignore[attr-defined]


#: fit(x, y, batch_size, epochs, verbose, callbacks, ...), in both libraries
_POSITION_OF_CALLBACKS = 5


def _with_own(callbacks: Any) -> Any:
    """The callbacks of `fit`, in any form that it takes, and behind them those of a distributed job."""
    from ddl.keras._callbacks import DDLGlobalVariablesCallback

    if hasattr(callbacks, "callbacks"):
        return callbacks  # a container, which the caller has set up for this training
    present = list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks] if callbacks else []
    if _broadcasts_by_itself() and not any(
        isinstance(callback, DDLGlobalVariablesCallback) for callback in present
    ):
        present.append(DDLGlobalVariablesCallback())
    if _drift.enabled():
        present.append(_EpochComparison())
    return present


class _EpochComparison(Callback):
    """Compares what ranks must agree on at the end of each epoch."""

    @_drift.averages_nothing()
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Collective.

        Raises:
            DDLError: Ranks have drifted apart, or only some of them stop.
        """
        stops = bool(getattr(self.model, "stop_training", False))
        # A rank with more batches makes another call here, which DDL names.
        every = ddl.all_gather(
            np.array([stops], np.int32), name=f"end of epoch {epoch + 1} of fit, after its last batch"
        )[:, 0]
        if every.any() and not every.all():
            stopping, going_on = int(np.argmax(every)), int(np.argmin(every))
            raise ddl.DDLError(
                f"[ERROR DDL-1-7] rank {stopping} stops training after epoch {epoch + 1} and rank {going_on} "
                "does not; in fit; put ddl.DDLCallback() before callbacks that decide by a rank's own "
                "figures, such as EarlyStopping",
                7,
            )
        watch = ddl_drift.watch_of(self.model.optimizer)
        if watch is not None:
            watch.finish()


_started: weakref.WeakSet[Any] = weakref.WeakSet()


def _hook_train_on_batch(model: type) -> None:
    """The first of them begins with rank 0's variables, as `fit` does."""
    from ddl.keras._callbacks import broadcast_state

    original = model.train_on_batch  # type: ignore[attr-defined]

    @functools.wraps(original)
    def train_on_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        starts = not update.inside and self not in _started and _distributed() and _broadcasts_by_itself()
        if starts and self.built:
            _started.add(self)
            broadcast_state(self)
        return original(self, *args, **kwargs)

    model.train_on_batch = train_on_batch  # type: ignore[attr-defined]


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


@_drift.averages_nothing()
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
