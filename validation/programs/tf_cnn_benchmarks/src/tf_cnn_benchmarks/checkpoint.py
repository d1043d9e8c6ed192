"""Checkpoints that every --variable_update can read.

Variables are saved under names without the device's prefix, from the first device's copy; what one run wrote
with ddl on 16 ranks another continues or evaluates alone.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.errors import BenchmarkError

v1 = tf.compat.v1

COPY = re.compile(r"^v(\d*)/")


def canonical_name(variable: Any) -> str:
    """The name without the device's prefix and output number."""
    return COPY.sub("", str(variable.op.name))


def copy_number(variable: Any) -> int:
    """Which device's copy a variable is; shared ones and the step count are copy 0."""
    match = COPY.match(variable.op.name)
    return int(match[1]) if match and match[1] else 0


def first_copies() -> dict[str, Any]:
    """The saved variables of the current graph by canonical name."""
    return {canonical_name(v): v for v in v1.global_variables() if copy_number(v) == 0}


def copies_from_first() -> list[Any]:
    """Operators that make every device's copy equal to the first one's."""
    first = first_copies()
    copies = []
    for variable in v1.global_variables():
        if copy_number(variable):
            with tf.device(variable.device):
                value = first[canonical_name(variable)].read_value()
                copies.append(variable.assign(value, read_value=False))
    return copies


class Checkpoints:
    """Writes into `folder`, every `seconds` or `steps` (0: only when asked), and reads the newest one. The
    first `uncounted` steps, those of the warm-up, do not count."""

    def __init__(self, folder: Path, *, seconds: int, steps: int, keep: int, uncounted: int = 0) -> None:
        self._folder = folder
        self._uncounted = uncounted
        self._seconds = seconds
        self._steps = steps
        self._saver = v1.train.Saver(first_copies(), max_to_keep=keep, save_relative_paths=True)
        self._last_time = time.monotonic()
        self._last_step: int | None = None

    def newest(self) -> str | None:
        path = v1.train.latest_checkpoint(str(self._folder))
        return None if path is None else str(path)

    def restore(self, session: Any, path: str) -> None:
        """Reads all variables; BenchmarkError when the checkpoint is of another model or damaged."""
        try:
            self._saver.restore(session, path)
        except (tf.errors.OpError, ValueError) as error:
            first = str(getattr(error, "message", error)).strip().splitlines()[0][:200]
            raise BenchmarkError(
                f"checkpoint {path} does not fit this run ({first}); use the flags it was made with "
                "(--model, --data_name, --optimizer) or another --train_dir"
            ) from None

    def save(self, session: Any, step: int) -> None:
        """Writes the checkpoint of `step`, unless it is the one written last."""
        if self._last_step == step:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            prefix = str(self._folder / "model.ckpt")
            self._saver.save(session, prefix, global_step=step, write_meta_graph=False)
        except (OSError, tf.errors.OpError, ValueError) as error:
            text = str(getattr(error, "message", error)).strip().splitlines()[0][:200]
            raise BenchmarkError(f"cannot write a checkpoint to --train_dir={self._folder}: {text}") from None
        self._last_step = step
        self._last_time = time.monotonic()

    def after_step(self, session: Any, step: int, since: int | None = None) -> float:
        """Saves when it is time to; returns the seconds that took. Where others make steps too, `since` is
        the step of the call before."""
        started = time.monotonic()
        before = step - 1 if since is None else since
        counted, counted_before = step - self._uncounted, max(0, before - self._uncounted)
        due = bool(self._steps) and counted // self._steps > counted_before // self._steps
        due = due or (bool(self._seconds) and started - self._last_time >= self._seconds)
        if due:
            self.save(session, step)
        return time.monotonic() - started
