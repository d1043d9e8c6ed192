"""Interrupts the writing of a Keras 3 backup before and in each of its steps. Weights and epoch must belong
together afterwards, and be the latest that were whole."""

import json
import os
import shutil
import sys
from pathlib import Path

from ddl.keras import _backup

FOLDER = Path(sys.argv[1]) / "backup"


class Killed(BaseException):
    """What a kill is here."""


class Inner:
    """Writes as Keras' callback does: the weights, then the epoch."""

    def __init__(self):
        self.epoch = 0

    def _save_model(self):
        FOLDER.mkdir(exist_ok=True)
        for name, text in (
            ("latest.weights.h5", f"weights {self.epoch}"),
            ("training_metadata.json", json.dumps({"epoch": self.epoch})),
        ):
            with open(FOLDER / name, "w") as file:
                file.write(text[: len(text) // 2])
                file.flush()
                tick()
                file.write(text[len(text) // 2 :])
            tick()


left = 0


def tick():
    global left
    left -= 1
    if left == 0:
        raise Killed


def counted(function):
    def call(*arguments):
        tick()
        return function(*arguments)

    return call


def found():
    """The epoch of the backup that a new start finds, and that of its weights; 0 where there is none."""
    _backup._make_whole(str(FOLDER))
    if not (FOLDER / "training_metadata.json").exists():
        assert not (FOLDER / "latest.weights.h5").exists()
        return 0
    epoch = json.loads((FOLDER / "training_metadata.json").read_text())["epoch"]
    assert (FOLDER / "latest.weights.h5").read_text() == f"weights {epoch}"
    return epoch


os.replace, os.remove = counted(os.replace), counted(os.remove)
interrupted = 0
for generation in (1, 2, 3):
    for step in range(1, 100):
        shutil.rmtree(FOLDER, ignore_errors=True)
        inner, left = Inner(), 0
        _backup._save_wholly(inner, str(FOLDER))
        for inner.epoch in range(1, generation):
            inner._save_model()
        inner.epoch, left = generation, step
        try:
            inner._save_model()
        except Killed:
            interrupted += 1
            left = 0
            assert found() in (generation - 1, generation), (generation, step, found())
            # The recovery itself may be interrupted too, and a second one follows.
            assert found() in (generation - 1, generation)
            continue
        left = 0
        assert found() == generation
        break
print(f"interrupted {interrupted} times")
