"""The real Slurm on emulated hosts: nodes are hosts, switches are racks, and nothing of it is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements
from ddl_validate.cluster.errors import ClusterError
from ddl_validate.cluster.slurm import Slurm, missing_slurm


@pytest.fixture(scope="module")
def able() -> None:
    """Left out where no Slurm can be started."""
    reasons = missing_requirements() + missing_slurm()
    if reasons:
        pytest.skip("; ".join(reasons))


@pytest.fixture(scope="module")
def slurm(able: None) -> Iterator[Slurm]:
    with Cluster(ClusterSpec.uneven([2, 1, 1], racks=2)) as cluster:
        made = Slurm(cluster)
        made.up()
        yield made


def test_tasks_run_on_the_hosts(slurm: Slurm) -> None:
    words = ["srun", "-N", "3", "-n", "4", "--label", "hostname"]
    done = slurm.run(words, timeout=30, check=True)
    assert sorted(done.stdout.splitlines()) == ["0: h1", "1: h1", "2: h2", "3: h3"]


def test_racks_are_switches(slurm: Slurm) -> None:
    done = slurm.run(["srun", "-N", "3", "printenv", "SLURM_TOPOLOGY_ADDR"], timeout=30, check=True)
    assert sorted(done.stdout.splitlines()) == ["spine.rack0.h1", "spine.rack0.h2", "spine.rack1.h3"]


def test_pmix_is_there(slurm: Slurm) -> None:
    done = slurm.run(["srun", "-N", "2", "--mpi=pmix", "printenv", "PMIX_RANK"], timeout=30, check=True)
    assert sorted(done.stdout.splitlines()) == ["0", "1"]


def test_a_batch_script_waits_and_tells_its_code(slurm: Slurm, tmp_path: Path) -> None:
    output = slurm.cluster.state / "output"
    words = ["sbatch", "-W", "-N", "2", "-o", str(output), "--wrap", "srun hostname; exit 7"]
    done = slurm.run(words, timeout=60)
    assert done.returncode == 7
    assert sorted(output.read_text().split()) == ["h1", "h2"]


def test_it_ends_with_the_cluster(able: None) -> None:
    with Cluster(ClusterSpec.even(hosts=1)) as cluster:
        made = Slurm(cluster, racks=False)
        made.up()
        conf = str(made.conf).encode()
        assert daemons(conf) >= {"slurmctld", "slurmd"}
    assert daemons(conf) == set()


def test_a_daemon_that_does_not_start_tells_why(able: None) -> None:
    with Cluster(ClusterSpec.even(hosts=1)) as cluster:
        made = Slurm(cluster, racks=False, spool="/proc/none")
        with pytest.raises(ClusterError, match=r"h1: .*/proc/none"):
            made.up()


def test_a_system_without_control_groups_is_named() -> None:
    """As a minimal container: slurmd would end at once."""
    if os.geteuid() != 0:
        pytest.skip("only root may unmount, in a namespace of its own")
    script = 'umount --recursive --lazy /sys/fs/cgroup 2>/dev/null; exec "$@"'
    ask = "from ddl_validate.cluster.slurm import missing_slurm; print(missing_slurm())"
    words = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", ask]
    folder = Path(__file__).resolve().parents[2]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    assert "no file system is mounted on /sys/fs/cgroup" in done.stdout, done.stdout


def daemons(conf: bytes) -> set[str]:
    """Names of this machine's processes that were started with a Slurm configuration."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if conf in (entry / "cmdline").read_bytes():
                found.add((entry / "comm").read_text().strip())
        except OSError:
            pass
    return found
