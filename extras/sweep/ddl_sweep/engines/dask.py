"""Trials as tasks of dask's workers."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from typing import Any

from ..errors import SweepError, TrialLost, required
from ..worker import Outcome, Task, run_trial

_WORKERS_SECONDS = 600


class Dask:
    """Workers of dask.

    Every worker needs this environment at the same path, and should see the sweep's folder.

    Args:
        client: A distributed.Client; default: a new one.
        slurm: Without a client, workers are jobs of Slurm, by dask_jobqueue.SLURMCluster with these
            arguments (cores, memory, walltime, queue, job_extra_directives, …). None: they are processes of
            this machine.
        wait_seconds: How long to wait for the first worker.
    """

    def __init__(
        self,
        client: Any = None,
        *,
        slurm: Mapping[str, Any] | None = None,
        wait_seconds: float = _WORKERS_SECONDS,
    ) -> None:
        if client is not None and slurm is not None:
            raise SweepError("Dask(client, slurm=…): the client has its workers; give one of both")
        self._client, self._slurm, self._wait = client, slurm, wait_seconds
        self._cluster: Any = None
        self._futures: set[Any] = set()
        self._cancelled = False

    def start(self, at_once: int | None) -> int:
        distributed = required("distributed", "dask", "the engine dask")
        if self._client is None:
            workers = at_once or len(os.sched_getaffinity(0))
            if self._slurm is not None:
                jobqueue = required("dask_jobqueue", "dask-jobqueue", "dask's workers in Slurm")
                arguments = {"cores": 1, "memory": "2GB", "processes": 1, **self._slurm}
                self._cluster = jobqueue.SLURMCluster(**arguments)
                self._cluster.scale(jobs=workers)
            else:
                self._cluster = distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
                )
            self._client = distributed.Client(self._cluster)
        try:
            self._client.wait_for_workers(1, timeout=self._wait)
        except TimeoutError:
            raise SweepError(
                f"no worker of dask within {self._wait:g} s; look at the queue and the workers' logs"
            ) from None
        threads = sum(self._client.nthreads().values())
        # Workers in Slurm come one by one.
        return at_once or max(1, threads)

    def run(self, task: Task) -> Outcome | None:
        from distributed import CancelledError, KilledWorker

        # A key is an identity for dask: the same trial again must be another one.
        key = f"trial-{task['number']}-{secrets.token_hex(8)}"
        future = self._client.submit(run_trial, task, key=key, pure=False)
        self._futures.add(future)
        try:
            outcome: Outcome | None = future.result()
            return outcome
        except CancelledError:
            if self._cancelled:
                return None
            raise TrialLost("dask has cancelled it") from None
        except KilledWorker as error:
            raise TrialLost(f"its workers were killed: {str(error)[:300]}") from None
        finally:
            self._futures.discard(future)

    def cancel(self) -> None:
        self._cancelled = True
        with contextlib.suppress(Exception):  # without its scheduler nothing runs
            # Workers end what they run by being ended: a thread of theirs cannot be.
            self._client.cancel(list(self._futures), force=True)

    def stop(self) -> None:
        if self._cluster is not None:
            if self._client is not None:
                self._client.close(timeout=10)
                self._client = None
            self._cluster.close(timeout=10)
