"""How a worker of parameter servers makes one step: together with the others, or by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tf_cnn_benchmarks.cluster import peers
from tf_cnn_benchmarks.cluster.spec import WORKER, Cluster

v1 = tf.compat.v1

WAKE_MS = 2000
"""After which who waits looks by himself, and whether the others are still there."""
STEP_MS = 3_600_000
"""For a step's own work."""


class Superseded(Exception):
    """Worker 0 has set the variables anew; this worker has to begin where they are."""


@dataclass(frozen=True)
class Job:
    """See SharedState.job."""

    generation: int
    timed_from: int
    end: int


@dataclass(frozen=True)
class Progress:
    """After a step: all finished steps, the last one to make, and [loss, top-1, top-5, images]; `summary`
    where there is one."""

    done: int
    end: int
    measures: Any
    summary: bytes | None = None


class Stepper(Protocol):
    """Makes steps of the generation that it was made for; Superseded when that is over."""

    def step(self, done: int, recorder: Callable[[Any, Any], Any] | None, summarised: bool) -> Progress: ...


@dataclass(frozen=True)
class SyncGraph:
    """Operators and tensors of a step that all workers make together.

    mark: the placeholder for [generation, step]. laid: lays this worker's part down. marks: all workers';
    arrived: the same after a ring. applied: worker 0's, the update by the mean, after which the others are
    released. measures: the step's. look: [job, step count], which the others read; heard: the same after a
    ring. summary: may be None.
    """

    mark: Any
    laid: Any
    marks: Any
    arrived: Any
    applied: Any
    measures: Any
    look: Any
    heard: Any
    summary: Any


@dataclass(frozen=True)
class AsyncGraph:
    """step: [step count after it, job, measures] of a step that this worker makes by itself."""

    step: Any
    summary: Any


def _within(milliseconds: int) -> Any:
    return v1.RunOptions(timeout_in_ms=milliseconds)


class SyncStepper:
    """One update for all workers: worker 0 gathers and applies, the others wait until it has."""

    def __init__(self, session: Any, graph: SyncGraph, cluster: Cluster, job: Job) -> None:
        self._session = session
        self._graph = graph
        self._cluster = cluster
        self._job = job
        self._lay = session.make_callable(graph.laid, feed_list=[graph.mark], accept_options=True)
        self._look = session.make_callable(graph.look, accept_options=True)
        self._heard = session.make_callable(graph.heard, accept_options=True)
        if cluster.leads:
            self._marks = session.make_callable(graph.marks, accept_options=True)
            self._arrived = session.make_callable(graph.arrived, accept_options=True)
            self._apply = session.make_callable([graph.applied, graph.measures], accept_options=True)

    def step(self, done: int, recorder: Callable[[Any, Any], Any] | None, summarised: bool) -> Progress:
        mark = np.asarray([self._job.generation, done + 1], np.int64)
        if recorder is not None:
            recorder(self._graph.laid, {self._graph.mark: mark})
        else:
            self._lay(mark, options=_within(STEP_MS))
        return self._gather(mark, summarised) if self._cluster.leads else self._wait(mark)

    def _gather(self, mark: Any, summarised: bool) -> Progress:
        """Worker 0: the mean of all, once it is there."""
        step = int(mark[1])
        waiting = peers.Waiting(self._cluster, f"make step {step}")
        marks = self._marks(options=_within(STEP_MS))
        while missing := [w for w, values in enumerate(marks) if (values != mark).any()]:
            try:
                marks = self._arrived(options=_within(WAKE_MS))
            except tf.errors.DeadlineExceededError:
                marks = self._marks(options=_within(STEP_MS))
                waiting.tick([(WORKER, w) for w in missing])
        if summarised and self._graph.summary is not None:
            fetches = [self._graph.applied, self._graph.measures, self._graph.summary]
            _, measures, summary = self._session.run(fetches, options=_within(STEP_MS))
            return Progress(step, self._job.end, measures, summary)
        _, measures = self._apply(options=_within(STEP_MS))
        return Progress(step, self._job.end, measures)

    def _wait(self, mark: Any) -> Progress:
        """Another worker: until the step count says that worker 0 has applied the step."""
        waiting = peers.Waiting(self._cluster, f"apply step {int(mark[1])}")
        while True:
            try:
                job, done = self._heard(options=_within(WAKE_MS))
            except tf.errors.DeadlineExceededError:
                job, done = self._look(options=_within(STEP_MS))
                waiting.tick([(WORKER, 0)])
            if int(job[0]) != self._job.generation:
                raise Superseded
            if done >= mark[1] or done >= job[2]:
                return Progress(int(done), int(job[2]), None)


class AsyncStepper:
    """Each worker's gradient changes the variables as soon as it is there."""

    def __init__(self, session: Any, graph: AsyncGraph, job: Job) -> None:
        self._session = session
        self._graph = graph
        self._job = job
        self._make = session.make_callable(graph.step, accept_options=True)

    def step(self, done: int, recorder: Callable[[Any, Any], Any] | None, summarised: bool) -> Progress:
        summary = None
        if recorder is not None:
            outcome = recorder(self._graph.step, None)
        elif summarised and self._graph.summary is not None:
            fetches = [self._graph.step, self._graph.summary]
            outcome, summary = self._session.run(fetches, options=_within(STEP_MS))
        else:
            outcome = self._make(options=_within(STEP_MS))
        after, job, measures = outcome
        if int(job[0]) != self._job.generation:
            raise Superseded
        return Progress(int(after), int(job[2]), measures, summary)


def missing_ps(cluster: Cluster) -> Sequence[peers.Task]:
    """The parameter servers that do not answer."""
    return peers.absent_of(cluster, [("ps", i) for i in range(len(cluster.ps))])
