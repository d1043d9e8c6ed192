"""TensorFlow's server of this task, and the tasks that do nothing but serve.

A parameter server, and a worker of distributed_all_reduce, end by themselves: whoever trains puts his number
into their queue `done` when he needs them no longer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.cluster import peers
from tf_cnn_benchmarks.cluster.spec import CONTROLLER, PS, WORKER, Cluster, task_device
from tf_cnn_benchmarks.cluster.task_queue import PUT_MS, TaskQueue
from tf_cnn_benchmarks.errors import BenchmarkError

v1 = tf.compat.v1

LOOK_S = 5.0
"""Between two looks at whether the others are still there."""
LAST_S = 60.0
"""After the first has said that the training is over, the others have so long to say so too."""
FAREWELL_S = 120.0
"""A task that answers, and cannot be notified of the end of the training, is given up after so long."""
_OPENED: list[Any] = []


def start_server(cluster: Cluster, config: Any, protocol: str) -> Any:
    """Listens at this task's address; BenchmarkError where that is not possible."""
    server_config = v1.ConfigProto()
    server_config.CopyFrom(config)
    if server_config.inter_op_parallelism_threads == 1:
        # An operator that waits for another task must not keep the only thread.
        server_config.inter_op_parallelism_threads = 2
    jobs = v1.train.ClusterSpec(cluster.jobs)
    try:
        return v1.train.Server(jobs, cluster.job, cluster.index, protocol=protocol, config=server_config)
    except tf.errors.OpError as error:
        raise BenchmarkError(
            f"cannot listen on {cluster.address} ({str(error.message).splitlines()[0][:200]}); "
            "is the port taken, or the host another one?"
        ) from None


def session_limits(config: Any, devices: Sequence[str]) -> Any:
    """A session over these tasks only, whose making and whose runs have a limit."""
    limited = v1.ConfigProto()
    limited.CopyFrom(config)
    limited.device_filters[:] = devices
    limited.operation_timeout_in_ms = int(peers.HUNG_S * 1000)
    return limited


def open_session(target: str, graph: Any, config: Any) -> Any:
    """One that stays open until the process ends: to close it would be to wait for servers that have gone."""
    _OPENED.append(v1.Session(target, graph=graph, config=config))
    return _OPENED[-1]


def _done_queue(job: str, index: int) -> TaskQueue:
    return TaskQueue(job, index, f"done_of_{job}_{index}")


def serve(cluster: Cluster, config: Any, protocol: str) -> None:
    """Serves until all that train here have said that they are done.

    A worker that was lost cannot say it: LAST_S after worker 0, whose word ends the training, only those are
    waited for that accept connections. BenchmarkError where no one of them does for LOST_S before that.
    """
    server = start_server(cluster, config, protocol)
    masters = [(CONTROLLER, 0)] if cluster.controller else [(WORKER, i) for i in range(len(cluster.workers))]
    limited = session_limits(config, [task_device(cluster.job, cluster.index)])
    finished: set[int] = set()
    over: float | None = None
    waiting = peers.Waiting(cluster, "train")
    with tf.Graph().as_default() as graph:
        done = _done_queue(cluster.job, cluster.index)
        with v1.Session(server.target, graph=graph, config=limited) as session:
            while len(finished) < len(masters):
                number = done.take(session, LOOK_S)
                if number is not None:
                    finished.add(number)
                now = time.monotonic()
                over = now if over is None and 0 in finished else over
                if over is not None:
                    late = [task for i, task in enumerate(masters) if i not in finished]
                    gone = peers.absent_of(cluster, late)
                    if now - over > (LAST_S if gone == late else peers.HUNG_S):
                        names = ", ".join(cluster.named(*task) for task in late)
                        peers.say(f"{cluster.task} ends; {names} did not report that it is done")
                        return
                elif not any(peers.answers(cluster.jobs[job][i]) for job, i in masters):
                    waiting.tick(masters)
                else:
                    waiting = peers.Waiting(cluster, "train")


def farewell(cluster: Cluster, target: str, device: str, number: int, tasks: Sequence[peers.Task]) -> None:
    """Tells the serving `tasks` that master `number`, on the device `own`, is done. One that is gone needs no
    telling; one that is slow is told again, for it would wait."""
    for job, index in tasks:
        # A session would wait for the servers that have ended already.
        config = v1.ConfigProto(operation_timeout_in_ms=PUT_MS)
        config.device_filters[:] = [device, task_device(job, index)]
        with tf.Graph().as_default() as graph:
            put = _done_queue(job, index).put(number)
        until = time.monotonic() + FAREWELL_S
        while peers.answers(cluster.jobs[job][index]):
            try:
                session = open_session(target, graph, config)
                session.run(put, options=v1.RunOptions(timeout_in_ms=PUT_MS))
                break
            except tf.errors.OpError as error:
                if time.monotonic() > until:
                    peers.say(
                        f"{cluster.named(job, index)} cannot be notified of the end of the training "
                        f"({type(error).__name__}); it may keep waiting: end it by hand"
                    )
                    break
                time.sleep(peers.POLL_S)


def served_tasks(cluster: Cluster) -> list[peers.Task]:
    """The tasks that only serve."""
    job, addresses = (WORKER, cluster.workers) if cluster.controller else (PS, cluster.ps)
    return [(job, i) for i in range(len(addresses))]
