"""Evaluations: how many steps, their accuracy, and when they interrupt a training."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tf_cnn_benchmarks import report
from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.params import Params
from tf_cnn_benchmarks.workers import Workers

DEFAULT_BATCHES = 100
ROUNDING = 1e-9


@dataclass(frozen=True)
class EvaluationGraph:
    """`measures` is [loss, top-1, top-5, images] of a batch; `restart` begins the input anew."""

    measures: Any
    restart: Callable[[Any], None]


class Evaluator:
    """Evaluates as the flags say; `batch` is this rank's images of a step, `examples` the whole data's."""

    def __init__(
        self,
        params: Params,
        workers: Workers,
        printer: report.Printer,
        *,
        batch: int,
        examples: int,
        synthetic: bool,
    ) -> None:
        self._params = params
        self._workers = workers
        self._print = printer
        self._batch = batch
        self._steps_of_epoch = examples / (batch * workers.size)
        self._synthetic = synthetic

    @property
    def steps(self) -> int:
        """How many are to be expected."""
        if self._params.num_eval_batches is not None:
            return self._params.num_eval_batches
        if self._params.num_eval_epochs is not None:
            return max(1, math.ceil(self._params.num_eval_epochs * self._steps_of_epoch - ROUNDING))
        if self._synthetic or self._given:
            return self._params.num_batches or DEFAULT_BATCHES
        return math.ceil(self._steps_of_epoch)

    @property
    def _given(self) -> bool:
        """Whether --num_batches is the length of the evaluation, not that of a training."""
        return self._params.eval and self._params.num_batches is not None

    def _parts(self) -> list[int | None]:
        """Numbers of steps, each from the first image on; None goes to the last one."""
        epochs = self._params.num_eval_epochs
        if self._synthetic or self._params.num_eval_batches is not None or (epochs is None and self._given):
            return [self.steps]
        if epochs is None:
            return [None]
        whole = int(epochs)
        rest = math.ceil((epochs - whole) * self._steps_of_epoch - ROUNDING)
        return [None] * whole + ([max(1, rest)] if epochs > whole else [])

    def evaluate(self, session: Any, graph: EvaluationGraph) -> dict[str, Any]:
        """Runs and prints; accuracies are of all ranks' images."""
        run = session.make_callable(graph.measures)
        sums = np.zeros(3)
        steps = 0
        begun = last_line = time.perf_counter()
        for part in self._parts():
            graph.restart(session)
            remaining = part
            while remaining is None or remaining > 0:
                try:
                    sums += np.asarray(run(), np.float64)[1:]
                except tf.errors.OutOfRangeError:
                    break
                steps += 1
                remaining = None if remaining is None else remaining - 1
                if steps % self._params.display_every == 0 and sums[2]:
                    now = time.perf_counter()
                    examples = self._params.display_every * self._batch
                    self._print(f"{steps}\t{examples / (now - last_line):.1f} examples/sec")
                    last_line = now
        elapsed = time.perf_counter() - begun
        top1, top5, images = self._workers.mean(sums, "evaluation") * self._workers.size
        if not images:
            raise BenchmarkError(f"found no image to evaluate in --data_dir={self._params.data_dir}")
        self._print(report.accuracy_line(top1 / images, top5 / images, round(images)))
        return {
            "images_per_sec": images / elapsed,
            "elapsed_seconds": elapsed,
            "steps": steps,
            "top_1_accuracy": float(top1 / images),
            "top_5_accuracy": float(top5 / images),
            "examples": round(images),
        }


class EvaluationTimes:
    """After which steps of the step count a training is evaluated; an epoch has `steps_of_epoch` steps, in
    general no whole number. The first `uncounted` steps, those of the warm-up, do not count."""

    def __init__(self, params: Params, steps_of_epoch: float, uncounted: int) -> None:
        self._uncounted = uncounted
        self._every: float | None = None
        if params.eval_during_training_every_n_steps is not None:
            self._every = float(params.eval_during_training_every_n_steps)
        elif params.eval_during_training_every_n_epochs is not None:
            self._every = params.eval_during_training_every_n_epochs * steps_of_epoch
        epochs = params.eval_during_training_at_specified_epochs
        self._at = {
            *params.eval_during_training_at_specified_steps,
            *(max(1, math.ceil(epoch * steps_of_epoch - ROUNDING)) for epoch in epochs),
        }

    def due(self, step: int) -> bool:
        """Whether the training is evaluated when `step` steps are done."""
        step -= self._uncounted
        if step <= 0:
            return False
        if self._every is None:
            return step in self._at
        return math.floor(step / self._every + ROUNDING) > math.floor((step - 1) / self._every + ROUNDING)
