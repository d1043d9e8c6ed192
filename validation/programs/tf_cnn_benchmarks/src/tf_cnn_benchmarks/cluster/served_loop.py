"""The steps of a worker of parameter servers, through lost servers and workers that come back."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from tf_cnn_benchmarks import report
from tf_cnn_benchmarks.cluster.served_steps import Job, Progress, Stepper
from tf_cnn_benchmarks.cluster.spec import Cluster
from tf_cnn_benchmarks.params import Params
from tf_cnn_benchmarks.statistics import speed
from tf_cnn_benchmarks.training_loop import Between

Measures = np.ndarray[Any, Any]


class ServedLoop:
    """Goes on in one session after the other until the step count is at the end.

    batch: this worker's images of a step; update_batch: the images of one update of the variables, which the
    step count counts; each: by how much it grows while each worker makes one step; uncounted: its steps that
    are warm-up. steps_made: in all sessions.
    """

    def __init__(
        self,
        params: Params,
        printer: report.Printer,
        between: Between,
        batch: int,
        update_batch: int,
        cluster: Cluster,
        *,
        each: int = 1,
        uncounted: int = 0,
    ) -> None:
        self.between = between
        self.steps_made = 0
        self._params = params
        self._print = printer
        self._batch = batch
        self._update_batch = update_batch
        self._cluster = cluster
        self._recorded_before = 2 * each
        self._uncounted = uncounted
        self._times: list[float] = []
        self._clock: float | None = None
        self._clock_step = 0
        self._aside = 0.0
        self._evaluations: list[dict[str, Any]] = []
        self._recorded = False

    def follow(self, stepper: Stepper, done: int, job: Job) -> None:
        """A worker that neither prints nor keeps anything."""
        end = job.end
        while done < end:
            progress = stepper.step(done, None, False)
            self.steps_made += 1
            done, end = progress.done, progress.end

    def lead(self, session: Any, stepper: Stepper, done: int, job: Job, *, again: bool) -> dict[str, Any]:
        """Worker 0; returns what --result_json gets. `again`: not the first session of this process."""
        timed_from, end = job.timed_from, job.end
        if not again:
            self._print("Running warm up")
            if done > timed_from:
                # A process that was started again must get going first, too.
                timed_from = max(done, min(done + 1, end - 1))
        if self._clock is not None and done < self._clock_step:
            self._clock, self._times, self._aside = None, [], 0.0
        measures: Measures | None = None
        stopped, unfinished = False, done < end
        while not stopped and (done < end or (unfinished and self._one_more(done, timed_from))):
            if self._clock is None and done >= timed_from:
                self._start_clock(done)
            timed = self._clock is not None
            number = len(self._times) + 1
            displayed = timed and (number == 1 or number % self._params.display_every == 0)
            begun, before = time.perf_counter(), done
            recorded = timed_from - self._recorded_before <= done < timed_from
            progress = self._step(session, stepper, done, recorded=recorded)
            self.steps_made += 1
            measures = np.asarray(progress.measures, np.float64)
            done, end = progress.done, progress.end
            if timed:
                self._times.append(time.perf_counter() - begun)
                if displayed:
                    self._show(measures)
            spent, stopped = self._after(session, before, done, last=done >= end)
            # workers that do not wait for each other train on meanwhile, and what they make counts
            self._aside += spent if timed and self._params.cross_replica_sync else 0.0
        return self._finish(session, done, measures, stopped=stopped)

    def _one_more(self, done: int, timed_from: int) -> bool:
        """The clock needs a step of this worker's, even where the others were so fast that none is left;
        together with others there is always one."""
        return not self._times and not self._params.cross_replica_sync and done >= timed_from

    def _start_clock(self, done: int) -> None:
        self._print("Done warm up", report.header_line(self._params))
        self._clock, self._clock_step = time.perf_counter(), done

    def _step(self, session: Any, stepper: Stepper, done: int, *, recorded: bool) -> Progress:
        recorder = None
        if recorded and self.between.recorder is not None and not self._recorded:
            self._recorded = True
            files = self.between.recorder

            def recorder(fetches: Any, feed: Any) -> Any:
                return files.run(session, fetches, feed)

        every = self._params.save_summaries_steps
        summarised = self.between.events is not None and bool(every)
        summarised = summarised and (done + 1 - self._uncounted) % every == 0
        progress = stepper.step(done, recorder, summarised)
        if progress.summary is not None and self.between.events is not None:
            self.between.events.add(progress.summary, progress.done)
        return progress

    def _show(self, measures: Measures) -> None:
        step = len(self._times)
        estimate = speed(self._times, self._batch, self._params.display_perf_ewma)
        self._print(report.step_line(self._params, step, estimate, measures))
        if self.between.log is not None:
            self.between.log.step(step, estimate.mean, report.accuracies(self._params, measures))

    def _after(self, session: Any, before: int, done: int, *, last: bool) -> tuple[float, bool]:
        """What is due after a step: the seconds that took, and whether the training ends."""
        begun = time.perf_counter()
        if self.between.checkpoints is not None:
            self.between.checkpoints.after_step(session, done, before)
        stopped = False
        due = any(self.between.times.due(step) for step in range(before + 1, done + 1))
        if self.between.evaluate is not None and due and not last:
            stopped = self._evaluate(done, final=False)
        return time.perf_counter() - begun, stopped

    def _evaluate(self, done: int, *, final: bool) -> bool:
        """Evaluates; whether the accuracy is the one to stop at."""
        assert self.between.evaluate is not None
        self._print(report.evaluation_line(done, final=final))
        result = self.between.evaluate(done)
        self._evaluations.append({"global_step": done, **result})
        if final:
            return False
        goal = self._params.stop_at_top_1_accuracy
        if goal is not None and result["top_1_accuracy"] >= goal:
            self._print(report.stop_line(goal))
            return True
        self._print(report.RESUMING)
        return False

    def _finish(self, session: Any, done: int, measures: Measures | None, *, stopped: bool) -> dict[str, Any]:
        """The total, the last checkpoint and the last evaluation."""
        elapsed, total = 0.0, 0.0
        if self._clock is not None and self._times:
            elapsed = time.perf_counter() - self._clock - self._aside
            total = (done - self._clock_step) * self._update_batch / elapsed
        self._print(*report.end_lines(self._params, total))
        if self.between.log is not None:
            timed_steps = done - self._clock_step if self._times else 0
            self.between.log.metric("average_examples_per_sec", total, timed_steps)
        if self.between.checkpoints is not None:
            self.between.checkpoints.save(session, done)
        if self.between.evaluate is not None and not stopped:
            self._evaluate(done, final=True)
        return {
            "images_per_sec": total,
            "elapsed_seconds": elapsed,
            "steps": len(self._times),
            "global_step": done,
            "step_seconds": self._times,
            **({"evaluations": self._evaluations} if self.between.evaluate is not None else {}),
            **report.measured(self._params, self._times, self._batch, measures),
        }
