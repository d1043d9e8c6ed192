"""DDL where torchrun, or another launcher that knows no MPI, started the ranks."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements

ROOT = Path(__file__).resolve().parents[4]
PROGRAMS = Path(__file__).parent / "programs"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_two_ranks(ranks: Any) -> None:
    """As under mpirun; torch's process group works beside DDL, children are no ranks, nothing is left."""
    run = ranks(ranks.torchrun, "--nproc-per-node", "2", str(PROGRAMS / "together.py"))
    assert run.code == 0, run.err
    here = socket.gethostname()
    assert run.lines("rank ") == [
        f"0 of 2 local 0 of 2 host 0 of 1 on {here} sum 3",
        f"1 of 2 local 1 of 2 host 0 of 1 on {here} sum 3",
    ]
    assert run.lines("transports ") == ["shared memory"] * 2
    ranks.await_no_servers(1)


@pytest.mark.parametrize("method", ["env", "tcp", "store"])
def test_spawned_ranks(ranks: Any, method: str) -> None:
    """torch.multiprocessing.spawn sets no variables: what init_process_group is told is enough."""
    run = ranks(ranks.python, str(PROGRAMS / "spawned.py"), method, str(free_port()))
    assert run.code == 0, run.err
    assert sorted(run.lines("sum ")) == ["0 12.0", "1 12.0", "2 6.0"]
    ranks.await_no_servers(1)


def test_spawned_ranks_without_an_address(ranks: Any, tmp_path: Path) -> None:
    run = ranks(ranks.python, str(PROGRAMS / "spawned.py"), "file", str(tmp_path / "store"))
    assert run.code != 0 and not run.lines("sum "), run.err
    assert "[ERROR DDL-1-5] torch says rank " in run.err and "MASTER_ADDR and MASTER_PORT" in run.err, run.err


def test_a_killed_group_starts_anew(ranks: Any) -> None:
    """Rank 0, which started the server of the first group, is the one that dies."""
    words = ["--nproc-per-node", "2", "--max-restarts", "1", "--monitor-interval", "0.1"]
    run = ranks(ranks.torchrun, *words, str(PROGRAMS / "killed.py"), "0")
    assert run.code == 0, run.err
    assert run.lines("sum ") == ["3", "3"]
    ranks.await_no_servers(1)


def test_a_killed_rank_is_named(ranks: Any) -> None:
    """By the others, while nobody ends them; it is the one whose server they use."""
    runs = ranks.by_hand(3, free_port(), "killed.py", "0")
    assert [run.code for run in runs] == [-9, 0, 0], runs
    said = [line for run in runs for line in run.lines("survivor ")]
    assert len(said) == 2 and all(
        line.startswith("9 [ERROR DDL-1-9] the process of rank 0 ") for line in said
    )
    ranks.await_no_servers(3)


def test_a_rank_that_never_comes_is_named(ranks: Any) -> None:
    """Within -timeout."""
    words = [ranks.python, "-c", "import ddl"]
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "DDL_OPTIONS": "-timeout 2"}
    run = ranks(*words, **variables, RANK="0", WORLD_SIZE="3")
    assert run.code == 1
    assert "[ERROR DDL-1-8] rank 1, 2 did not come; in rank 0 of 3" in run.err, run.err
    ranks.await_no_servers(1)


def test_mpi_that_began_alone_is_refused(ranks: Any) -> None:
    words = [ranks.python, "-c", "import mpi4py.MPI, ddl"]
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    run = ranks(*words, **variables, RANK="0", WORLD_SIZE="2")
    assert run.code == 1 and "import ddl before mpi4py.MPI" in run.err, run.err


def test_torchrun_may_itself_be_a_rank(ranks: Any) -> None:
    """mpirun's variables mean torchrun, not its ranks."""
    words = ["-n", "1", ranks.torchrun, "--nproc-per-node", "2", str(PROGRAMS / "killed.py"), "7"]
    run = ranks(str(ranks.prefix / "bin/mpirun"), *words)
    assert run.code == 0, run.err
    assert run.lines("sum ") == ["3", "3"]


def test_its_parts(ranks: Any) -> None:
    run = ranks(ranks.python, str(PROGRAMS / "parts.py"))
    assert run.out == "good\n", run.err


@pytest.fixture(scope="module")
def hosts(torch_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """h1 and h2, two ranks each."""
    if missing_requirements():
        pytest.skip("; ".join(missing_requirements()))
    shared = tuple(str(path) for path in (torch_prefix, ROOT) if path.is_relative_to("/tmp"))
    spec = ClusterSpec.even(hosts=2, slots=2, shared=shared, life_seconds=300)
    # As Docker leaves it on every host: the same address on each.
    docker = (
        "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up"
    )
    with Cluster(spec, tmp_path_factory.mktemp("cluster") / "state") as cluster:
        for host in spec.hosts:
            cluster.run(host.name, ["sh", "-c", docker], timeout=20, check=True)
        yield cluster


def test_two_hosts_times_two_ranks(ranks: Any, hosts: Cluster) -> None:
    """What the servers of the two hosts exchange goes through torch's store."""
    words = [
        "--nnodes",
        "2",
        "--nproc-per-node",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "h1:29400",
    ]
    variables = {name: value for name, value in ranks.environment().items() if name != "TMPDIR"}
    children = [
        ranks.start(
            hosts.command(host, [ranks.torchrun, *words, str(PROGRAMS / "together.py")], env=variables),
            variables,
        )
        for host in ("h1", "h2")
    ]
    first, second = (ranks.finish(child) for child in children)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    said = sorted(first.lines("rank ") + second.lines("rank "))
    # which host comes first is up to torchrun
    names = ["h1", "h2"] if " on h1 " in said[0] else ["h2", "h1"]
    assert said == [
        f"{rank} of 4 local {rank % 2} of 2 host {rank // 2} of 2 on {names[rank // 2]} sum 10"
        for rank in range(4)
    ]
    for host in ("h1", "h2"):
        assert hosts.run(host, ["pgrep", "ddl-bootstrap"], timeout=10).stdout == ""
        assert "ddl-bootstrap" not in hosts.run(host, ["ls", "/tmp"], timeout=10).stdout
        # Open MPI leaves the removal of its shared memory to the server
        assert hosts.run(host, ["ls", "/dev/shm"], timeout=10).stdout == ""
