"""--benchmark_log_dir: files that collect runs for later comparison.

benchmark_run.log holds one JSON object, the description of the run; metric.log one for each number, a line
each. Names and form are those which TensorFlow's official models gave such files.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tf_cnn_benchmarks.errors import BenchmarkError

RUN, METRIC = "benchmark_run.log", "metric.log"
_FORMS = {bool: "bool_value", int: "long_value", float: "float_value"}


class BenchmarkLog:
    """Writes into `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(
        self, *, model: str, dataset: str, tensorflow: str, test_id: str | None, flags: Mapping[str, Any]
    ) -> None:
        """Describes the run in a file of its own, which replaces that of a run before."""
        content = {
            "model_name": model,
            "dataset": {"name": dataset},
            "machine_config": {"cpu_info": {"num_cores": os.cpu_count()}},
            "test_id": test_id,
            "run_date": _now(),
            "tensorflow_version": {"version": tensorflow},
            "run_parameters": [_parameter(name, flags[name]) for name in sorted(flags)],
        }
        self._write(RUN, "w", json.dumps(content) + "\n")

    def metric(self, name: str, value: float, step: int) -> None:
        """Adds a number."""
        content = {
            "name": name,
            "value": float(value),
            "unit": None,
            "global_step": step,
            "timestamp": _now(),
            "extras": [],
        }
        self._write(METRIC, "a", json.dumps(content) + "\n")

    def step(self, step: int, examples_per_sec: float, accuracies: tuple[float, float] | None) -> None:
        """Adds what a step line shows; the accuracies are top-1 and top-5."""
        self.metric("current_examples_per_sec", examples_per_sec, step)
        for k, accuracy in zip((1, 5), accuracies or (), strict=False):
            self.metric(f"top_{k}_accuracy", accuracy, step)

    def _write(self, name: str, mode: str, text: str) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / name).open(mode, encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise BenchmarkError(
                f"cannot write to --benchmark_log_dir={self._folder}: {error.strerror}; name another"
            ) from None


def _parameter(name: str, value: Any) -> dict[str, Any]:
    form = _FORMS.get(type(value))
    return {"name": name, form: value} if form else {"name": name, "string_value": str(value)}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
