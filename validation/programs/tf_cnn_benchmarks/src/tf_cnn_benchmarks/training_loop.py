"""Warm-up and timed steps, with what happens between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tf_cnn_benchmarks import report
from tf_cnn_benchmarks.benchmark_log import BenchmarkLog
from tf_cnn_benchmarks.checkpoint import Checkpoints
from tf_cnn_benchmarks.evaluation import EvaluationTimes
from tf_cnn_benchmarks.exchange_cost import compare
from tf_cnn_benchmarks.params import Params
from tf_cnn_benchmarks.statistics import speed, total_speed
from tf_cnn_benchmarks.summaries import Events
from tf_cnn_benchmarks.trace import StepRecorder
from tf_cnn_benchmarks.workers import Workers


@dataclass(frozen=True)
class Plan:
    """Steps of this run: `warmup` untimed ones, then `timed` ones. The first `uncounted` steps of the step
    count are the warm-up of the whole training, of which this run may be a later part."""

    warmup: int
    timed: int
    uncounted: int


@dataclass(frozen=True)
class Steps:
    """What is run. `step` does a step's work; `measures` is [loss, top-1, top-5, images] of its batch when
    both are fetched together. `alone` is a step without the exchange between ranks, `summary` the step's
    summaries; each is None where nobody asks for it."""

    step: Any
    measures: Any
    alone: Any | None
    summary: Any | None


@dataclass(frozen=True)
class Between:
    """What is done between steps, where the flags ask for it: files of rank 0, and the evaluation (which
    returns its results and is made by all ranks)."""

    checkpoints: Checkpoints | None
    events: Events | None
    log: BenchmarkLog | None
    recorder: StepRecorder | None
    evaluate: Callable[[int], dict[str, Any]] | None
    times: EvaluationTimes


class TrainingLoop:
    """Runs `steps` in `session`; `batch` is this rank's images of one. Also serves --forward_only."""

    def __init__(
        self,
        params: Params,
        workers: Workers,
        printer: report.Printer,
        session: Any,
        steps: Steps,
        between: Between,
        batch: int,
        graph_key: int = 0,
    ) -> None:
        self._params = params
        self._workers = workers
        self._print = printer
        self._session = session
        self._steps = steps
        self._between = between
        self._batch = batch
        self._evaluations: list[dict[str, Any]] = []
        self._graph_key = graph_key
        self._uncounted = 0
        self._plain = self._callable(steps.step)
        self._measured = self._callable([steps.step, steps.measures])
        self._summarised = None
        if between.events is not None and steps.summary is not None:
            self._summarised = self._callable([steps.step, steps.measures, steps.summary])

    def _callable(self, fetches: Any) -> Callable[[], Any]:
        """Runs a step. Its collectives are found by the others under the graph key."""
        if not self._graph_key:
            run: Callable[[], Any] = self._session.make_callable(fetches)
            return run
        keyed = self._session.make_callable(fetches, accept_options=True)
        options = tf.compat.v1.RunOptions()
        options.experimental.collective_graph_key = self._graph_key
        return lambda: keyed(options=options)

    def run(self, plan: Plan, done: int) -> dict[str, Any]:
        """All steps after the `done` ones; returns what --result_json gets."""
        self._uncounted = plan.uncounted
        stopped = self._warm_up(plan, done)
        # The clock needs a step, even if the goal has been reached before it runs.
        timed = 1 if stopped else plan.timed
        done += plan.warmup
        params = self._params
        if timed:
            self._print("Done warm up", report.header_line(params))
        times: list[float] = []
        measures: np.ndarray[Any, Any] | None = None
        exchange: dict[str, Any] = {}
        aside = 0.0
        first = begun = time.perf_counter()
        for i in range(1, timed + 1):
            last = i == timed
            displayed = i == 1 or i % params.display_every == 0
            values = self._step(done + 1, measured=displayed or last or self._due(done + 1))
            done += 1
            times.append(time.perf_counter() - begun)
            if i == timed or not exchange:
                # Before anything else is exchanged, so that it tells about the gradients.
                exchange = self._workers.describe()
            if values is not None:
                measures = self._workers.mean(np.asarray(values, np.float64), "measures")
                if displayed:
                    self._show(i, times, measures)
            spent, reached = self._after(done, last=last)
            stopped = stopped or reached
            aside += spent
            begun = time.perf_counter()
            if stopped:
                break
        elapsed = time.perf_counter() - first - aside
        total = total_speed(self._workers.size, len(times), self._batch, elapsed) if times else 0.0
        self._print(*report.end_lines(params, total))
        if self._between.log is not None:
            self._between.log.metric("average_examples_per_sec", total, len(times) * self._workers.size)
        if self._between.checkpoints is not None:
            self._between.checkpoints.save(self._session, done)
        if self._between.evaluate is not None and not stopped:
            self._evaluate(done, final=True)
        return {
            "images_per_sec": total,
            "elapsed_seconds": elapsed,
            "steps": len(times),
            "warmup_steps": plan.warmup,
            "global_step": done,
            "step_seconds": times,
            **self._exchange_cost(),
            **({"evaluations": self._evaluations} if self._between.evaluate else {}),
            **report.measured(params, times, self._batch, measures),
            "ddl": exchange,
        }

    def _warm_up(self, plan: Plan, done: int) -> bool:
        """Returns whether an evaluation has ended the training already."""
        self._print("Running warm up")
        stopped = False
        recorder = self._between.recorder
        for i in range(plan.warmup):
            last = i == plan.warmup - 1
            if recorder is not None and i == max(0, plan.warmup - 2):
                fetches = [self._steps.step, self._steps.measures]
                recorder.run(self._session, fetches, graph_key=self._graph_key)
            else:
                # Both forms of the step must be compiled and their memory allocated before the clock runs.
                self._step(done + 1, measured=last or i == 0)
            done += 1
            stopped = self._after(done, last=False)[1] or stopped
        return stopped

    def _step(self, number: int, *, measured: bool) -> Any | None:
        """Runs step `number`; its measures if they are wanted."""
        every = self._params.save_summaries_steps
        if self._summarised is not None and every and (number - self._uncounted) % every == 0:
            _, values, summary = self._summarised()
            assert self._between.events is not None
            self._between.events.add(summary, number)
            return values if measured else None
        if measured:
            return self._measured()[1]
        self._plain()
        return None

    def _due(self, step: int) -> bool:
        return self._between.evaluate is not None and self._between.times.due(step)

    def _after(self, done: int, *, last: bool) -> tuple[float, bool]:
        """What is due after a step: the seconds that took, and whether the training ends. The evaluation
        after the last step is the final one."""
        begun = time.perf_counter()
        if self._between.checkpoints is not None:
            self._between.checkpoints.after_step(self._session, done)
        stopped = self._evaluate(done, final=False) if self._due(done) and not last else False
        return time.perf_counter() - begun, stopped

    def _evaluate(self, done: int, *, final: bool) -> bool:
        """Evaluates; whether the accuracy is the one to stop at."""
        assert self._between.evaluate is not None
        self._print(report.evaluation_line(done, final=final))
        result = self._between.evaluate(done)
        self._evaluations.append({"global_step": done, **result})
        if final:
            return False
        goal = self._params.stop_at_top_1_accuracy
        if goal is not None:
            # Rank 0 decides: a last bit that differs must not let some ranks go on alone.
            reached = np.asarray([float(result["top_1_accuracy"] >= goal)])
            if self._workers.broadcast(reached, "stop")[0]:
                self._print(report.stop_line(goal))
                return True
        self._print(report.RESUMING)
        return False

    def _show(self, step: int, times: list[float], measures: Any) -> None:
        estimate = speed(times, self._batch, self._params.display_perf_ewma)
        self._print(report.step_line(self._params, step, estimate, measures))
        if self._between.log is not None:
            self._between.log.step(step, estimate.mean, report.accuracies(self._params, measures))

    def _exchange_cost(self) -> dict[str, Any]:
        """With --exchange_blocks. Without exchange the ranks' variables drift apart; nothing but speeds is
        taken from here on."""
        if self._steps.alone is None:
            return {}
        alone = self._callable(self._steps.alone)
        compared = compare(self._workers, self._plain, alone, self._params.exchange_blocks, self._batch)
        self._print(report.exchange_line(compared))
        return {"exchange_cost": compared.as_json()}
