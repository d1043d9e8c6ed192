"""What a training leaves in its folder, and how it goes on from there."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import ddl
import keras
import numpy as np

from .errors import NmtError
from .model import Shape
from .vocabulary import Vocabularies

_CHECKPOINT = re.compile(r"^checkpoint-(\d{4,})\.keras$")
_KEPT = 2
_DESCRIPTION = "model.json"
_LONGEST_DESCRIPTION = 4096


def checkpoint_path(folder: Path) -> Path:
    """The pattern of the checkpoints' names, as Keras' ModelCheckpoint takes it: a new file for each epoch.

    A file is never written over, so that a training that is ended while it writes has the one before.
    """
    return folder / "checkpoint-{epoch:04d}.keras"


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """The epochs of the checkpoints in a folder, and their files; the newest last."""
    paths = [
        (int(match[1]), file) for file in folder.glob("*.keras") if (match := _CHECKPOINT.match(file.name))
    ]
    return sorted(paths)


class OldCheckpoints(keras.callbacks.Callback):  # type: ignore[misc]
    """Removes all checkpoints but the newest."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Called by Keras."""
        for _, file in checkpoints(self._folder)[:-_KEPT]:
            file.unlink(missing_ok=True)


def describe(shape: Shape, optimizer: str, vocabularies: Vocabularies) -> dict[str, Any]:
    """What must be the same for a checkpoint to fit."""
    return {
        **dataclasses.asdict(shape),
        "optimizer": optimizer,
        "source_vocabulary": vocabularies.source.digest,
        "target_vocabulary": vocabularies.target.digest,
    }


def write_description(folder: Path, description: dict[str, Any]) -> None:
    """Notes what the checkpoints of a folder are of. For rank 0 alone."""
    unfinished = folder / f"{_DESCRIPTION}.unfinished"
    unfinished.write_text(json.dumps(description, indent=1) + "\n")
    os.replace(unfinished, folder / _DESCRIPTION)


def read_description(folder: Path) -> dict[str, Any] | None:
    """What `write_description` has noted, or None. Rank 0 reads and tells the others. Collective."""
    text = np.zeros(_LONGEST_DESCRIPTION, np.int32)
    if ddl.rank() == 0:
        try:
            content = (folder / _DESCRIPTION).read_bytes()[:_LONGEST_DESCRIPTION]
        except FileNotFoundError:
            content = b"null"
        except OSError as error:
            raise NmtError(f"{folder / _DESCRIPTION} cannot be read: {error.strerror}") from None
        text[: len(content)] = list(content)
    try:
        description = json.loads(bytes(ddl.bcast(text, name=_DESCRIPTION).astype(np.uint8)).rstrip(b"\0"))
    except ValueError:
        description = "damaged"
    if description is not None and not isinstance(description, dict):
        raise NmtError(f"{folder / _DESCRIPTION} describes no model; take another --folder")
    return description


def check_description(folder: Path, present: dict[str, Any], expected: dict[str, Any]) -> None:
    """An error where a folder holds checkpoints of something else; `present` is what it holds."""
    for name in expected:
        if present.get(name) != expected[name]:
            if name.endswith("_vocabulary"):
                raise NmtError(
                    f"--folder {folder} holds a model of another {name.replace('_', ' ')}; take the --data "
                    "it was trained on, or another --folder"
                )
            raise NmtError(
                f"--folder {folder} holds a model with {name} {present.get(name)}, and {expected[name]} is "
                "asked for; ask for the same, or take another --folder"
            )


def restore(folder: Path, model: Any) -> int:
    """Gives a compiled model the values of the newest checkpoint of a folder.

    Rank 0 reads, and only it need see the folder; the others get the values when the training begins, or by
    `ddl.broadcast_variables`. Collective.

    Returns:
        The number of epochs that are done; 0 where there is no checkpoint.
    """
    done = np.zeros(1, np.int64)
    if ddl.rank() == 0:
        done[0] = _restore(folder, model)
    return int(ddl.bcast(done, name="epochs that are done")[0])


def _restore(folder: Path, model: Any) -> int:
    damaged = []
    for epoch, file in reversed(checkpoints(folder)):
        try:
            # The other ranks make no second model.
            with ddl.no_broadcast():
                saved = keras.saving.load_model(file)
        except Exception as error:  # of zip, HDF5 or Keras: whatever half a file leads to
            damaged.append(f"{file} ({' '.join(str(error).split())[:200]})")
            continue
        for note in damaged:
            print(f"passed over a checkpoint that cannot be read: {note}", flush=True)
        model.set_weights(saved.get_weights())
        for variable, value in zip(model.optimizer.variables, saved.optimizer.variables, strict=True):
            variable.assign(value)
        return epoch
    if damaged:
        raise NmtError(
            f"no checkpoint of --folder {folder} can be read: {'; '.join(damaged)}; take another --folder"
        )
    return 0
