"""Several emulated hosts on one Linux machine, for tests and benchmarks that need a cluster.

A host is a process tree in network, UTS, IPC, PID and mount namespaces of its own: its own hostname, eth0,
/tmp, /run, /dev/shm, /etc/hosts and sshd. The rest of the file system is shared by all hosts, as with NFS.
Racks are bridges joined by a spine; the links are shaped by a token bucket, so that rates are real, while
latency is the machine's own. A launcher or an MPI library cannot tell such hosts from machines.

    from ddl_validate.cluster import Cluster, ClusterSpec

    with Cluster(ClusterSpec.even(hosts=4, slots=2, racks=2, link_rate="1gbit", uplink_rate="200mbit")) as
    cluster:
        cluster.run("h1", ["mpirun", "--hostfile", str(cluster.hostfile), "hostname"], timeout=60)

The same from a shell: ``python -m ddl_validate.cluster up --hosts 4 --racks 2``, ``exec h1 …``, ``down``.
"""

from .cluster import Cluster
from .errors import ClusterError
from .requirements import missing_requirements
from .spec import ClusterSpec, HostSpec

__all__ = ["Cluster", "ClusterError", "ClusterSpec", "HostSpec", "missing_requirements"]
