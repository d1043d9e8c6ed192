"""Callbacks that write: on rank 0 only."""

from __future__ import annotations

import importlib
import os
from typing import Any

import ddl
from ddl.keras._callbacks import Callback


def on_rank_0(callback: Any) -> Any:
    """Returns the callback on rank 0, and one that does nothing elsewhere.

    For TensorBoard, CSVLogger and the like. Not for callbacks that steer the training, such as EarlyStopping,
    which
    must act on all ranks; put DDLCallback before them.

    Raises:
        TypeError: A BackupAndRestore, which restores on rank 0 alone then; use DDLBackupAndRestore.
    """
    if type(callback).__name__.startswith("BackupAndRestore"):
        raise TypeError(
            "on_rank_0(BackupAndRestore): the other ranks would begin with another epoch and other "
            "weights; use "
            "ddl.DDLBackupAndRestore(folder) instead"
        )
    return callback if ddl.rank() == 0 else Callback()


class OnRank0(Callback):
    """A callback of the Keras whose model is trained, made and called on rank 0 alone.

    Args:
        kind: The callback's class in keras.callbacks.
        arguments: For it.
        options: For it.
    """

    def __init__(self, kind: str, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self._kind = kind
        self._arguments = arguments
        self._options = options
        self.inner: Any = None

    def set_model(self, model: Any) -> None:
        """Makes the callback."""
        super().set_model(model)
        if ddl.rank() != 0:
            return
        if self.inner is None:
            callbacks = importlib.import_module(f"{keras_of(model)}.callbacks")
            self.inner = getattr(callbacks, self._kind)(*self._arguments, **self._options)
        self.inner.set_params(self.params)
        self.inner.set_model(model)

    def _implements_train_batch_hooks(self) -> bool:
        return bool(self._options.get("save_freq", "epoch") != "epoch")

    def _forward(self, event: str, *arguments: Any) -> None:
        if self.inner is not None:
            getattr(self.inner, event)(*arguments)

    def on_train_begin(self, logs: Any = None) -> None:
        """Forwarded on rank 0, as the others."""
        self._forward("on_train_begin", logs)

    def on_train_end(self, logs: Any = None) -> None:
        """Forwarded."""
        self._forward("on_train_end", logs)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Forwarded."""
        self._forward("on_epoch_begin", epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Forwarded; here most files are written."""
        self._forward("on_epoch_end", epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Forwarded."""
        self._forward("on_train_batch_begin", batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Forwarded."""
        self._forward("on_train_batch_end", batch, logs)


class DDLModelCheckpoint(OnRank0):
    """Keras' ModelCheckpoint, of the Keras whose model is trained, on rank 0 only.

    Put it behind DDLCallback, so that `save_best_only` compares the metrics of all ranks.

    Args:
        filepath: As for ModelCheckpoint.
        options: As for ModelCheckpoint.
    """

    def __init__(self, filepath: str | os.PathLike[str], **options: Any) -> None:
        super().__init__("ModelCheckpoint", os.fspath(filepath), **options)


def keras_of(model: Any) -> str:
    """The name of the Keras that a model is of."""
    legacy = any(base.__module__.split(".")[0] == "tf_keras" for base in type(model).__mro__)
    return "tf_keras" if legacy else "keras"
