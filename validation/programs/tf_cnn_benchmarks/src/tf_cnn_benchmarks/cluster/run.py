"""What a task of a cluster does."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.benchmark import ended
from tf_cnn_benchmarks.choices import SERVED
from tf_cnn_benchmarks.cluster.collective import CollectiveBenchmark, CollectiveWorkers, set_leader
from tf_cnn_benchmarks.cluster.in_graph import InGraphBenchmark
from tf_cnn_benchmarks.cluster.peers import absent_of, await_tasks
from tf_cnn_benchmarks.cluster.served_benchmark import LOST, ServedBenchmark
from tf_cnn_benchmarks.cluster.server import (
    farewell,
    serve,
    served_tasks,
    session_limits,
    start_server,
)
from tf_cnn_benchmarks.cluster.spec import CONTROLLER, PS, WORKER, Cluster, task_device
from tf_cnn_benchmarks.cluster.watch import Watch, lost_text
from tf_cnn_benchmarks.cluster.workers import ClusterWorkers
from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.params import Params
from tf_cnn_benchmarks.session import find_machine, session_config

v1 = tf.compat.v1

SETTLE_S = 1.0
"""A process that is ending may still listen for a moment."""


def run_task(params: Params, cluster: Cluster) -> None:
    """Serves or trains; BenchmarkError as of run_benchmark."""
    v1.logging.set_verbosity(v1.logging.ERROR)
    try:
        if cluster.job == PS:
            config = v1.ConfigProto(device_count={"GPU": 0}, allow_soft_placement=True)
            serve(cluster, config, params.server_protocol)
        elif params.variable_update in SERVED:
            ServedBenchmark(params, cluster).run()
        elif cluster.job == CONTROLLER:
            await_tasks(cluster, served_tasks(cluster))
            control(params, cluster)
        elif cluster.controller:
            serve(cluster, _config(params, cluster), params.server_protocol)
        else:
            reduce(params, cluster)
    except LOST as error:
        raise _lost(cluster, error) from error
    except tf.errors.OpError as error:
        raise ended(error) from error


def _config(params: Params, cluster: Cluster) -> Any:
    workers = ClusterWorkers(cluster)
    return session_config(params, find_machine(params, workers), workers)


def control(params: Params, cluster: Cluster) -> None:
    """The controller of distributed_all_reduce."""
    benchmark = InGraphBenchmark(params, cluster)
    watch = Watch(cluster, served_tasks(cluster))
    benchmark.run()
    watch.stop()
    farewell(cluster, benchmark.target, task_device(CONTROLLER, 0), 0, served_tasks(cluster))


def reduce(params: Params, cluster: Cluster) -> None:
    """A worker of collective_all_reduce."""
    config = _config(params, cluster)
    set_leader(config)
    server = start_server(cluster, config, params.server_protocol)
    others = [(WORKER, w) for w in range(len(cluster.workers)) if w != cluster.index]
    await_tasks(cluster, others)
    watch = Watch(cluster, others)
    config = session_limits(config, [task_device(WORKER, w) for w in sorted({0, cluster.index})])
    workers = CollectiveWorkers(cluster, server.target, config)
    CollectiveBenchmark(params, cluster, workers, server.target, config).run()
    workers.gather()
    watch.stop()
    workers.leave()


def _lost(cluster: Cluster, error: Any) -> BenchmarkError:
    """An error of an all-reduce that a lost worker explains names it."""
    time.sleep(SETTLE_S)
    others = [(WORKER, w) for w in range(len(cluster.workers)) if (WORKER, w) != (cluster.job, cluster.index)]
    gone = absent_of(cluster, others)
    return BenchmarkError(lost_text(cluster, gone, type(error).__name__)) if gone else ended(error)
