"""Checkpoints that every --variable_update can read.

Variables are saved from the first device's copy, under names that say nothing of the device (v/...); what one
run wrote with ddl on 16 ranks another continues or evaluates alone. A first copy that others have written
under the device's name (v0/...) is read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.layers import NETWORK

v1 = tf.compat.v1

COPY = re.compile(r"^v(\d*)/")


SHARED = "v/"
PREFIX = f"{SHARED}{NETWORK}/"
"""With which the canonical names of a model's variables begin."""


def canonical_name(variable: Any) -> str:
    """The name without the device's number and that of the output."""
    return COPY.sub(SHARED, str(variable.op.name))


def stored_names(names: Iterable[str]) -> dict[str, str]:
    """By canonical name, that in a checkpoint which holds variables of these names."""
    copies = {name: COPY.match(name) for name in names}
    return {COPY.sub(SHARED, name): name for name, copy in copies.items() if not copy or copy[1] in ("", "0")}


def model_variables() -> dict[str, Any]:
    """The variables of the current graph's model by canonical name, while it has no optimizer yet."""
    return {name: v for name, v in first_copies().items() if name.startswith(PREFIX)}


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
        self._names = list(first_copies())

    def newest(self) -> str | None:
        path = v1.train.latest_checkpoint(str(self._folder))
        return None if path is None else str(path)

    def restore(self, session: Any, path: str, assign: Callable[[str, Any], None]) -> None:
        """Reads all variables; BenchmarkError when the checkpoint is of another model or damaged. `assign`
        sets the variable of a name."""
        try:
            reader = tf.train.load_checkpoint(path)
            stored = stored_names(reader.get_variable_to_shape_map())
            if all(stored.get(name, name) == name for name in self._names):
                self._saver.restore(session, path)
                return
            for name in self._names:
                assign(name, reader.get_tensor(stored.get(name, name)))
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
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
            if self._last_step is None:
                tf.io.write_graph(session.graph_def, str(self._folder), "graph.pbtxt")
            self._saver.save(session, str(self._folder / "model.ckpt"), global_step=step)
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
