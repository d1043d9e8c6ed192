"""The workers of a cluster as one of them sees them."""

from __future__ import annotations

from tf_cnn_benchmarks.cluster.spec import Cluster
from tf_cnn_benchmarks.workers import OneProcess


def _host(address: str) -> str:
    return address.rpartition(":")[0]


class ClusterWorkers(OneProcess):
    """Their number and places. What they exchange passes through the graph."""

    def __init__(self, cluster: Cluster) -> None:
        self.rank, self.size = cluster.index, len(cluster.workers)
        host = _host(cluster.address)
        neighbours = [i for i, address in enumerate(cluster.workers) if _host(address) == host]
        self.local_rank, self.local_size = neighbours.index(cluster.index), len(neighbours)
