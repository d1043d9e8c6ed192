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
    step count counts. steps_made: in all sessions.
    """

    def __init__(
        self,
        params: Params,
        printer: report.Printer,
        between: Between,
        batch: int,
        update_batch: int,
        cluster: Cluster,
    ) -> None:
        self.between = between
        self.steps_made = 0
        self._params = params
        self._print = printer
        self._batch = batch
        self._update_batch = update_batch
        self._cluster = cluster
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
                timed_from = min(done + 1, end - 1)
        if self._clock is not None and done < self._clock_step:
            self._clock, self._times, self._aside = None, [], 0.0
        measures: Measures | None = None
        stopped = False
        while not stopped and (done < end or self._one_more(done, timed_from)):
            if self._clock is None and done >= timed_from:
                self._start_clock(done)
            timed = self._clock is not None
            displayed = timed and (
                not self._times or (len(self._times) + 1) % self._params.display_every == 0
            )
            begun, before = time.perf_counter(), done
            progress = self._step(session, stepper, done, last_warmup=done == timed_from - 1)
            self.steps_made += 1
            measures = np.asarray(progress.measures, np.float64)
            done, end = progress.done, progress.end
            if timed:
                self._times.append(time.perf_counter() - begun)
                if displayed:
                    self._show(done, measures)
            spent, stopped = self._after(session, before, done)
            # workers that do not wait for each other train on meanwhile, and what they make counts
            self._aside += spent if timed and self._params.cross_replica_sync else 0.0
        return self._finish(session, done, measures)

    def _one_more(self, done: int, timed_from: int) -> bool:
        """The clock needs a step of this worker's, even where the others were so fast that none is left;
        together with others there is always one."""
        return not self._times and not self._params.cross_replica_sync and done >= timed_from

    def _start_clock(self, done: int) -> None:
        params = self._params
        title = report.header_line(loss=params.loss_type_to_report, accuracy=params.print_training_accuracy)
        self._print("Done warm up", title)
        self._clock, self._clock_step = time.perf_counter(), done

    def _step(self, session: Any, stepper: Stepper, done: int, *, last_warmup: bool) -> Progress:
        recorder = None
        if last_warmup and self.between.recorder is not None and not self._recorded:
            self._recorded = True
            files = self.between.recorder

            def recorder(fetches: Any, feed: Any) -> Any:
                return files.run(session, fetches, feed)

        every = self._params.save_summaries_steps
        summarised = self.between.events is not None and bool(every) and (done + 1) % every == 0
        progress = stepper.step(done, recorder, summarised)
        if progress.summary is not None and self.between.events is not None:
            self.between.events.add(progress.summary, progress.done)
        return progress

    def _show(self, done: int, measures: Measures) -> None:
        loss, top1, top5, images = (float(x) for x in measures)
        accuracy = (top1 / images, top5 / images) if self._params.print_training_accuracy else None
        estimate = speed(self._times, self._batch, self._params.display_perf_ewma)
        self._print(report.step_line(len(self._times), estimate, loss, accuracy))
        if self.between.log is not None:
            self.between.log.metric("current_examples_per_sec", self._batch / self._times[-1], done)

    def _after(self, session: Any, before: int, done: int) -> tuple[float, bool]:
        """What is due after a step: the seconds that took, and whether the training ends."""
        begun = time.perf_counter()
        if self.between.checkpoints is not None:
            self.between.checkpoints.after_step(session, done, before)
        stopped = False
        due = any(self.between.times.due(step) for step in range(before + 1, done + 1))
        if self.between.evaluate is not None and due:
            stopped = self._evaluate(done)
        return time.perf_counter() - begun, stopped

    def _evaluate(self, done: int) -> bool:
        """Evaluates; whether the accuracy is the one to stop at."""
        assert self.between.evaluate is not None
        self._print(f"Running evaluation at global_step {done}")
        result = self.between.evaluate(done)
        self._evaluations.append({"global_step": done, **result})
        goal = self._params.stop_at_top_1_accuracy
        if goal is None or result["top_1_accuracy"] < goal:
            return False
        self._print(f"Stopping, as eval accuracy at least {goal} was reached")
        return True

    def _finish(self, session: Any, done: int, measures: Measures | None) -> dict[str, Any]:
        """The total, the last checkpoint and the last evaluation."""
        elapsed, total = 0.0, 0.0
        if self._clock is not None and self._times:
            elapsed = time.perf_counter() - self._clock - self._aside
            total = (done - self._clock_step) * self._update_batch / elapsed
            self._print(*report.total_lines(total))
        else:
            self._print("No step was left to time")
        if self.between.log is not None:
            self.between.log.metric("average_examples_per_sec", total, done)
        if self.between.checkpoints is not None:
            self.between.checkpoints.save(session, done)
        if self.between.evaluate is not None and (
            not self._evaluations or self._evaluations[-1]["global_step"] != done
        ):
            self._evaluate(done)
        result: dict[str, Any] = {
            "images_per_sec": total,
            "elapsed_seconds": elapsed,
            "steps": len(self._times),
            "global_step": done,
            "step_seconds": self._times,
            **({"evaluations": self._evaluations} if self.between.evaluate is not None else {}),
        }
        if self._times:
            estimate = speed(self._times, self._batch, self._params.display_perf_ewma)
            result["rank_images_per_sec"] = estimate.mean
            result["rank_images_per_sec_uncertainty"] = estimate.uncertainty
            result["rank_images_per_sec_jitter"] = estimate.jitter
        if measures is not None:
            result[self._params.loss_type_to_report] = float(measures[0])
            result["top_1_accuracy"] = float(measures[1] / measures[3])
            result["top_5_accuracy"] = float(measures[2] / measures[3])
        return result
