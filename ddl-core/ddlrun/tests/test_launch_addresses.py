"""The address by which the ranks of all hosts find rank 0, where names and first addresses mislead."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddlrun_program import PROGRAMS, Ddlrun
from emulated import ROOT, shared_folders
from rank_processes import prefix_with

from ddl_validate.cluster import Cluster, ClusterSpec, HostSpec, missing_requirements

#: Of h1 alone: no route leads there from h2. It is what h1's own name means on h1.
PRIVATE, REAL = "192.0.2.7", "10.77.1.0"


@pytest.fixture(scope="module")
def torch_prefix() -> Path:
    return prefix_with("lib/python3*/site-packages/torch", "pytorch", "pytorch", "ddl-pytorch")


@pytest.fixture(scope="module")
def hosts(torch_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """h1 has two addresses; its name means the one that others do not reach; h2 does not know the name."""
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    folder = tmp_path_factory.mktemp("hosts")
    (folder / "h1").write_text(f"127.0.0.1 localhost\n{PRIVATE} h1\n10.77.1.1 h2\n")
    (folder / "h2").write_text("127.0.0.1 localhost\n10.77.1.1 h2\n")
    spec = ClusterSpec(
        tuple(HostSpec(name, overlays=(("/etc/hosts", str(folder / name)),)) for name in ("h1", "h2")),
        shared=shared_folders(torch_prefix),
        environment={"SHLVL": "1"},
        life_seconds=300,
    )
    with Cluster(spec, tmp_path_factory.mktemp("cluster") / "state") as cluster:
        for words in (
            "link add private0 type veth peer name private1",
            f"addr add {PRIVATE}/32 dev private0",
            "link set private0 up",
            "link set private1 up",
        ):
            cluster.run("h1", ["ip", *words.split()], timeout=20, user="root", check=True)
        yield cluster


def test_the_name_of_rank_0s_host_is_known_to_itself_alone(
    hosts: Cluster, torch_prefix: Path, tmp_path: Path
) -> None:
    """ddlrun tells torch the name; DDL's backend takes the address that every host reaches instead."""
    closed = hosts.run("h2", [sys.executable, "-c", "import socket; socket.gethostbyname('h1')"], timeout=20)
    assert closed.returncode == 1 and "gaierror" in closed.stderr
    ddlrun = Ddlrun(torch_prefix, ROOT, tmp_path)
    words = ["-timeout", "60", "-H", "h1:1,h2:1", "python", str(PROGRAMS / "torch_rendezvous.py")]
    run = hosts.run("h1", [*ddlrun.words, *words], timeout=100, env=ddlrun.variables)
    assert run.returncode == 0, run.stderr
    lines = sorted(run.stdout.splitlines())
    assert lines == [f"{rank} on h{rank + 1} by {REAL} sum 2" for rank in range(2)], run.stdout


def test_hosts_with_ipv6_alone(torch_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Ranks, output and input of a rank 0 elsewhere, DDL's and Gloo's process groups."""
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    folder = tmp_path_factory.mktemp("ipv6")
    spec = ClusterSpec.even(3, shared=shared_folders(torch_prefix), life_seconds=300, ipv6=True)
    ddlrun = Ddlrun(torch_prefix, ROOT, folder)
    with Cluster(spec, folder / "state") as cluster:

        def run(hosts: str, *program: str) -> list[str]:
            words = [*ddlrun.words, "-q", "-timeout", "60", "-H", hosts, *program]
            fed = ["sh", "-c", 'echo from here | "$@"', "sh", *words]
            ended = cluster.run("h1", fed, timeout=100, env=ddlrun.variables)
            assert ended.returncode == 0 and "[WARN" not in ended.stderr, ended.stdout + ended.stderr
            return sorted(ended.stdout.splitlines())

        first = cluster.spec.address(0)
        assert ":" in first
        three = [f"{rank} on h{rank + 1} sum 3" for rank in range(3)]
        assert run("h1:1,h2:1,h3:1", "python", str(PROGRAMS / "joined.py")) == three
        assert run(f"{first},{cluster.spec.address(2)}", "hostname") == ["h1", "h3"]
        assert run("h2:1,h3:1", "sh", "-c", "cat; hostname") == ["from here", "h2", "h3"]
        by_ddl = [f"{rank} on h{rank + 1} by {first} sum 2" for rank in range(2)]
        assert run("h1:1,h2:1", "python", str(PROGRAMS / "torch_rendezvous.py")) == by_ddl
        gloo = (
            "import torch, torch.distributed as dist; dist.init_process_group('gloo'); x = torch.ones(1); "
            "dist.all_reduce(x); print(int(x)); dist.destroy_process_group()"
        )
        assert run("h1:1,h3:1", "python", "-c", gloo) == ["2", "2"]


_LISTEN = (
    "import sys; sys.path.insert(0, sys.argv[1]); import addresses as a; b = a.Beacon(); "
    "print(','.join(a.own_addresses()), b.port, b.token.hex(), flush=True); input()"
)
_REACH = (
    "import sys; sys.path.insert(0, sys.argv[1]); import addresses as a; "
    "print(a.reached(sys.argv[2].split(','), int(sys.argv[3]), bytes.fromhex(sys.argv[4]), 2.0))"
)


def test_which_addresses_are_reached(hosts: Cluster) -> None:
    """Each side finds its own answer: h1 reaches itself by both, h2 by one of them."""
    package = str(ROOT / "ddl-core/ddlrun/ddlrun")
    beacon = subprocess.Popen(
        hosts.command("h1", [sys.executable, "-c", _LISTEN, package]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert beacon.stdout
    try:
        addresses, port, token = beacon.stdout.readline().split()
        assert addresses == f"{PRIVATE},{REAL}", "the name's address comes first"

        def reached(host: str, known: str) -> str:
            words = [sys.executable, "-c", _REACH, package, addresses, port, known]
            return hosts.run(host, words, timeout=30, check=True).stdout.strip()

        assert reached("h1", token) == "[True, True]"
        assert reached("h2", token) == "[False, True]"
        assert reached("h2", "00" * 16) == "[False, False]", "somebody else answers there"
    finally:
        beacon.communicate("\n", timeout=20)
