"""--variable_update=distributed_all_reduce: one controller, whose graph has the devices of all workers.

It is `replicated` with the devices of other processes: each has a copy of the variables, and the gradients
are reduced between the devices as --all_reduce_spec says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tf_cnn_benchmarks.benchmark import Benchmark
from tf_cnn_benchmarks.cluster.server import session_limits, start_server
from tf_cnn_benchmarks.cluster.spec import CONTROLLER, WORKER, Cluster, task_device
from tf_cnn_benchmarks.datasets import Batch, Shard
from tf_cnn_benchmarks.params import Params
from tf_cnn_benchmarks.session import Machine
from tf_cnn_benchmarks.workers import OneProcess


class InGraphBenchmark(Benchmark):
    """The controller's run."""

    def __init__(self, params: Params, cluster: Cluster) -> None:
        self._tasks = cluster
        super().__init__(params, OneProcess(), cluster=cluster, home=task_device(CONTROLLER, 0))
        self._server = start_server(cluster, super()._session_config(), params.server_protocol)
        self.target = self._target = self._server.target

    def _find_machine(self) -> Machine:
        """The devices of a worker, once for each worker; variables are with them."""
        machine = super()._find_machine()
        self._each = machine.devices
        devices = [
            f"{task_device(WORKER, w)}{device}"
            for w in range(len(self._tasks.workers))
            for device in machine.devices
        ]
        return replace(machine, devices=devices)

    def _session_config(self) -> Any:
        return session_limits(super()._session_config(), [])

    def _inputs(self, *, training: bool, device_batch: int) -> tuple[list[Batch], list[tuple[Any, Any]]]:
        """Each worker reads its own images."""
        batches: list[Batch] = []
        inputs: list[tuple[Any, Any]] = []
        size = len(self._tasks.workers)
        for w in range(size):
            devices = self._machine.devices[w * len(self._each) : (w + 1) * len(self._each)]
            shard = Shard(w, size, device_batch * len(devices))
            reader = f"{task_device(WORKER, w)}/cpu:0"
            worker_batches, images = self._inputs_of(shard, devices, reader, training=training)
            batches += worker_batches
            inputs += images
        return batches, inputs
