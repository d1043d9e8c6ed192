"""Goes on after an interruption: rank 0 writes and reads the backup, all ranks go on from it."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import numpy as np

import ddl
from ddl import _drift
from ddl.keras._callbacks import broadcast_state
from ddl.keras._rank0 import OnRank0, keras_of

_FRESH, _RESTORED, _FAILED = 0, 1, 2


class DDLBackupAndRestore(OnRank0):
    """Keras' BackupAndRestore for many ranks: rank 0 backs up, and all ranks go on where the job was
    interrupted.

    Epoch, weights, moving averages and the optimizer's state, its learning rate included, are rank 0's on all
    ranks. The
    folder must be where rank 0 finds it again, whichever host it is on then. A kill at any moment
    leaves a whole backup. Build the model before `fit`, by
    an input
    shape or a call. Horovod has no such callback: it leaves initial_epoch and loading to the script, or to
    its
    elastic `TensorFlowKerasState`.

    Args:
        backup_dir: As for BackupAndRestore.
        options: As for BackupAndRestore: save_freq, delete_checkpoint, and those of the Keras in use.
    """

    def __init__(self, backup_dir: str | os.PathLike[str], **options: Any) -> None:
        super().__init__("BackupAndRestore", os.fspath(backup_dir), **options)
        self._counters: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Restores on rank 0, and gives all ranks what was restored.

        Raises:
            DDLError: On every other rank when rank 0 cannot restore; there it is the error of Keras.
        """
        legacy = keras_of(self.model) == "tf_keras"
        _build_optimizer(self.model)
        state = np.array([_FRESH, -1, -1], np.int64)
        failure: Exception | None = None
        if ddl.rank() == 0:
            try:
                if not legacy:
                    _make_whole(self._arguments[0])
                    _save_wholly(self.inner, self._arguments[0])
                self._forward("on_train_begin", logs)
                state[1:] = _saved_counters(self.inner, self.model, legacy)
                state[0] = _RESTORED if _has_backup(self._arguments[0], legacy) else _FRESH
            except Exception as error:
                failure = error
                state[0] = _FAILED
        if ddl.size() > 1:
            with _drift.averages_nothing():
                ddl.bcast_(state, name="epoch and batch of the backup")
        if failure is not None:
            raise failure
        if state[0] == _FAILED:
            raise ddl.DDLError(
                "[ERROR DDL-1-5] rank 0 cannot restore its backup; in DDLBackupAndRestore; see its output",
                5,
            )
        if ddl.rank() != 0:
            self._go_on(state, legacy)
        if state[0] == _RESTORED and ddl.size() > 1:
            broadcast_state(self.model)

    def on_train_end(self, logs: Any = None) -> None:
        """Deletes the backup, unless it shall stay."""
        self._forward("on_train_end", logs)
        if self._counters is not None:
            self.model._training_state = None
            self._counters = None

    def _go_on(self, state: np.ndarray[Any, np.dtype[np.int64]], legacy: bool) -> None:
        """On the other ranks: the epoch, and with tf_keras the batch, that rank 0 goes on with."""
        if state[0] != _RESTORED:
            return
        if not legacy:
            self.model._initial_epoch = int(state[1])
            return
        from tf_keras.src.distribute.worker_training_state import WorkerTrainingState

        # It reads nothing, and nobody calls it to write: `fit` asks it where to go on.
        self._counters = WorkerTrainingState(
            self.model, self._arguments[0], self._options.get("save_freq", "epoch")
        )
        self._counters._ckpt_saved_epoch.assign(int(state[1]))
        self._counters._ckpt_saved_batch.assign(int(state[2]))
        self.model._training_state = self._counters


def _build_optimizer(model: Any) -> None:
    """Its variables must be there before they can be restored, or received."""
    optimizer = getattr(model, "optimizer", None)
    build = getattr(optimizer, "build", None)
    if build is None or not model.built:
        return
    if not getattr(optimizer, "built", getattr(optimizer, "_built", False)):
        build(model.trainable_variables)


def _saved_counters(inner: Any, model: Any, legacy: bool) -> tuple[int, int]:
    if legacy:
        state = inner._training_state
        return int(state._ckpt_saved_epoch.numpy()), int(state._ckpt_saved_batch.numpy())
    return int(model._initial_epoch or 0), -1


_WEIGHTS, _METADATA, _PREVIOUS = "latest.weights.h5", "training_metadata.json", "previous"


def _save_wholly(inner: Any, folder: str) -> None:
    """Makes Keras 3's callback put the backup before aside while it writes. It writes the weights and then
    the epoch; killed in between, it would go on with the epoch before from weights that have seen it.
    """
    save = inner._save_model
    previous = os.path.join(folder, _PREVIOUS)

    def save_model() -> None:
        if _is_json(os.path.join(folder, _METADATA)):
            os.makedirs(previous, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(previous, _METADATA))
            # The epoch is always the last to move: where it is, the backup is, or its weights are beside it.
            for name in (_WEIGHTS, _METADATA):
                os.replace(os.path.join(folder, name), os.path.join(previous, name))
        save()

    if not getattr(save, "is_whole", False):
        save_model.is_whole = True  # type: ignore[attr-defined]
        inner._save_model = save_model


def _make_whole(folder: str) -> None:
    """Where a backup was not written to its end, the one before takes its place."""
    weights, metadata = os.path.join(folder, _WEIGHTS), os.path.join(folder, _METADATA)
    previous = os.path.join(folder, _PREVIOUS)
    kept_weights, kept_metadata = os.path.join(previous, _WEIGHTS), os.path.join(previous, _METADATA)
    if _is_json(metadata):
        if not os.path.exists(weights) and os.path.exists(kept_weights):
            os.replace(kept_weights, weights)
    elif os.path.exists(kept_metadata):
        if os.path.exists(kept_weights):
            os.replace(kept_weights, weights)
        os.replace(kept_metadata, metadata)
    else:
        # Not even the first one came to its end.
        for path in (weights, metadata):
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def _is_json(path: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            json.load(file)
    except (OSError, ValueError):
        return False
    return True


def _has_backup(folder: str, legacy: bool) -> bool:
    marker = (
        os.path.join(folder, "chief", "checkpoint")
        if legacy
        else os.path.join(folder, "training_metadata.json")
    )
    return os.path.exists(marker)
