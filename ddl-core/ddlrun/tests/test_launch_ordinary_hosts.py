"""Jobs on hosts as they are: Docker's bridge, start files, two names, addresses that anybody may bind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddlrun import networks
from ddlrun.networks import Network
from ddlrun_program import PROGRAMS, Ddlrun
from emulated import shared_folders

from ddl_validate.cluster import Cluster, ClusterSpec, HostSpec, missing_requirements

NAMES = ("h1", "h2", "h3")
# As the start files of a host set them.
OF_H2 = {
    "KERAS_BACKEND": "jax",
    "PYTHONPATH": "/opt/py/lib",
    "OMPI_MCA_pml": "cm",
    "PRTE_MCA_rmaps": "none",
    "OPAL_PREFIX": "/opt/ompi",
}
# docker0 as Docker leaves it on a host without a container: up, and without a carrier.
DOCKER = (
    "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up && "
    "ip link add vx type veth peer name vy && ip link set vx master docker0 && ip link set vx up && "
    "ip link set vy up && sleep 0.2 && ip link del vx"
)
Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def hosts(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    spec = ClusterSpec(
        (HostSpec("h1", slots=2), HostSpec("h2", environment=tuple(OF_H2.items())), HostSpec("h3")),
        shared=shared_folders(prefix),
        life_seconds=600,
    )
    with Cluster(spec, tmp_path_factory.mktemp("cluster") / "state") as cluster:
        for name in NAMES:
            cluster.run(name, ["sh", "-c", DOCKER], timeout=20, check=True)
            cluster.run(name, ["sysctl", "-qw", "net.ipv4.ip_nonlocal_bind=1"], timeout=20, check=True)
        alias = "sed 's/\\bh2\\b/h2 h2-ib/' /etc/hosts > /tmp/hosts && cat /tmp/hosts > /etc/hosts"
        cluster.run("h1", ["sh", "-c", alias], timeout=20, check=True)
        yield cluster


@pytest.fixture
def start(hosts: Cluster, ddlrun: Ddlrun) -> Start:
    """Runs ddlrun on h1."""

    def on_h1(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return hosts.run("h1", [*ddlrun.words, *words], timeout=90, env={**ddlrun.variables, **more})

    return on_h1


# ---- the network


@pytest.mark.slow
def test_dockers_bridge_on_every_host_is_no_way_to_them(start: Start) -> None:
    run = start("-v", "-H", "h1:1,h2:1,h3:1", "python", str(PROGRAMS / "joined.py"))
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == ["0 on h1 sum 3", "1 on h2 sum 3", "2 on h3 sum 3"]
    assert "left out: 172.17.0.0/16 of docker0" in run.stderr


@pytest.mark.slow
def test_gloo_takes_the_interface_that_leads_to_the_others(start: Start) -> None:
    """Also where a host's own name means 127.0.1.1."""
    program = (
        "import os, torch, torch.distributed as dist; dist.init_process_group('gloo');"
        "x = torch.ones(1); dist.all_reduce(x); print(int(x), os.environ['GLOO_SOCKET_IFNAME']);"
        "dist.destroy_process_group()"
    )
    run = start("-q", "-H", "h1:1,h3:1", "python", "-c", program)
    assert run.returncode == 0 and run.stdout.splitlines() == ["2 eth0"] * 2, run.stdout + run.stderr


def entry(interface: str, network: str, address: str, kind: str = "other", leads: bool = False) -> Network:
    return Network(interface, address, network, kind, leads)


def test_which_networks_are_left_out() -> None:
    ethernet = [entry("eth0", "10.1.0.0/16", f"10.1.0.{number}", leads=True) for number in (1, 2)]
    second = [entry("ib0", "10.2.0.0/16", f"10.2.0.{number}") for number in (1, 2)]
    docker = entry("docker0", "172.17.0.0/16", "172.17.0.1", "bridge")
    virtual = entry("virbr0", "192.168.122.0/24", "192.168.122.1", "bridge")
    vpn = entry("tun0", "10.9.0.0/24", "10.9.0.7", "tunnel")
    lo = entry("lo", "127.0.0.0/8", "127.0.0.1", "loopback")
    two = {
        "a": [lo, ethernet[0], second[0], docker, virtual, vpn],
        "b": [lo, ethernet[1], second[1], docker],
    }
    assert [found.interface for found in networks.left_out(two)] == ["docker0", "tun0", "virbr0"]
    made = networks.variables(two, {})
    assert made["OMPI_MCA_btl_tcp_if_exclude"] == (
        "127.0.0.0/8,sppp,172.17.0.0/16,10.9.0.0/24,192.168.122.0/24"
    )
    assert made["PRTE_MCA_prte_if_exclude"] == "172.17.0.0/16,10.9.0.0/24,192.168.122.0/24"
    assert made["NCCL_SOCKET_IFNAME"] == "^docker,lo,docker0,tun0,virbr0"
    # bridges and tunnels that lead to the others
    bridged = {
        "a": [entry("br0", "10.1.0.0/16", "10.1.0.1", "bridge", leads=True)],
        "b": [entry("tun0", "10.9.0.0/24", "10.9.0.7", "tunnel", leads=True)],
    }
    assert networks.left_out(bridged) == [] and networks.variables(bridged, {}) == {}
    # what the user says
    for name in ("OMPI_MCA_btl_tcp_if_include", "PRTE_MCA_prte_if_exclude"):
        assert "OMPI_MCA_btl_tcp_if_exclude" not in networks.variables(two, {name: "eth0"})
    assert "OMPI_MCA_btl_tcp_if_exclude" not in networks.variables(two, {}, ["--mca", "btl_tcp_if_include"])
    assert "NCCL_SOCKET_IFNAME" not in networks.variables(two, {"NCCL_SOCKET_IFNAME": "ib0"})
    assert networks.leading_interface(two["a"]) == "eth0"
    assert networks.leading_interface([docker]) is None


STEPS = """
import sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
if world.rank == 0:
    assert sys.stdin.readline() == "from here\\n"
for step in range(80):
    assert world.allreduce(world.rank + step) == sum(range(world.size)) + step * world.size
    time.sleep(0.1)
print("right", world.rank, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("on", ["h1:2", "h1:1,h2:1"])
def test_junk_from_another_account(hosts: Cluster, ddlrun: Ddlrun, on: str) -> None:
    """At every port that a job opens, on both hosts, while it starts and runs: it ends as if nothing were."""
    words = [*ddlrun.words, "-q", "-timeout", "80", "-H", on, "python", "-c", STEPS]
    fed = ["sh", "-c", 'echo from here | "$@"', "sh", *words]
    job = subprocess.Popen(
        hosts.command("h1", fed, env=ddlrun.variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    intruder = [sys.executable, "-I", str(PROGRAMS / "intruder.py"), "6"]
    intruders = [
        subprocess.Popen(hosts.command(host, intruder, user="root"), stdout=subprocess.PIPE, text=True)
        for host in ("h1", "h2")
    ]
    said = [one.communicate(timeout=60)[0].split() for one in intruders]
    out, err = job.communicate(timeout=90)
    assert job.returncode == 0 and sorted(out.splitlines()) == ["right 0", "right 1"], out + err
    assert all(account == "65534" for account, _ in said) and int(said[0][1]) >= 2, said


# ---- the environment


SHOW = """
import json, os
names = "KERAS_BACKEND OMP_NUM_THREADS PYTHONPATH OMPI_MCA_pml OPAL_PREFIX MY_SETTING HOSTNAME".split()
print(json.dumps([os.environ["RANK"], {name: os.environ.get(name) for name in names}]))
"""


@pytest.mark.slow
def test_all_ranks_have_the_environment_of_ddlrun(start: Start) -> None:
    """Three hosts, of which one has start files with other settings, and another MPI's."""
    given = {"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1", "MY_SETTING": "a b'\"$;\n"}
    run = start("-q", "-H", "h1:1,h2:1,h3:1", "python", "-c", SHOW, HOSTNAME="only-here", **given)
    assert run.returncode == 0, run.stderr
    seen = dict(json.loads(line) for line in run.stdout.splitlines())
    hostnames = [seen[rank].pop("HOSTNAME") for rank in "012"]
    assert hostnames[0] == "only-here" and "only-here" not in hostnames[1:]
    assert OF_H2["OPAL_PREFIX"] not in [
        seen[rank].pop("OPAL_PREFIX") for rank in "012"
    ]  # mpirun's may be there
    expected = {**dict.fromkeys(("PYTHONPATH", "OMPI_MCA_pml")), **given}
    assert seen["0"] == expected and seen["1"] == expected and seen["2"] == expected


# ---- the hosts' names


@pytest.mark.slow
def test_two_names_of_one_host_are_refused(start: Start) -> None:
    run = start("-H", "h2:1,h2-ib:1", "true")
    assert run.returncode == 1 and "h2 and h2-ib are the same host" in run.stderr, run.stderr


@pytest.mark.slow
def test_addresses_are_told_apart_where_any_may_be_bound(start: Start, hosts: Cluster) -> None:
    listed = "getent hosts h1 h2 | awk '{print $1}'"
    found = hosts.run("h1", ["sh", "-c", listed], timeout=20, check=True).stdout.split()
    run = start("-q", "-H", ",".join(f"{address}:1" for address in found), "hostname")
    assert run.returncode == 0 and sorted(run.stdout.split()) == ["h1", "h2"], run.stderr


@pytest.mark.slow
def test_a_folder_that_a_host_lacks_is_named(start: Start, hosts: Cluster) -> None:
    hosts.run("h1", ["mkdir", "-p", "/tmp/only-here"], timeout=20, check=True)
    run = start("-H", "h1:1,h3:1", "-wdir", "/tmp/only-here", "pwd")
    assert run.returncode == 1 and "the folder of -wdir: it does not exist; host h3" in run.stderr, run.stderr


# ---- output


@pytest.mark.slow
def test_output_of_another_host_comes_as_it_is_written(start: Start) -> None:
    """A line of 20 MB, for which mpirun takes minutes; and pieces without an end."""
    program = "import os, sys; sys.stdout.write(os.environ['RANK'] * (20 << 20) + '\\n'); print('x', end='')"
    run = start("-q", "-H", "h2:1,h3:1", "python", "-c", program)
    assert run.returncode == 0, run.stderr
    lines = sorted(run.stdout.removesuffix("xx").splitlines(), key=len)
    assert sorted(line.strip("x") for line in lines if len(line) > 100) == [
        "0" * (20 << 20),
        "1" * (20 << 20),
    ]
    assert run.stdout.count("x") == 2
