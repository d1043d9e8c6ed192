"""Whatever is killed: no process of the job is left on any host 10 s later; the message names the loss."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddlrun_program import PROGRAMS, Ddlrun
from emulated import assert_nothing_left, kill, processes, read_lines, shared_folders, started_on_h1

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements

HOSTS = ("h1", "h2", "h3")
STUBBORN = ("python", str(PROGRAMS / "stubborn.py"))


@pytest.fixture(scope="module")
def hosts(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    spec = ClusterSpec.even(
        hosts=3, shared=shared_folders(prefix), environment={"SHLVL": "1"}, life_seconds=600
    )
    with Cluster(spec, tmp_path_factory.mktemp("cluster") / "state") as cluster:
        yield cluster


Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def begin(hosts: Cluster, ddlrun: Ddlrun) -> Iterator[Begin]:
    """Starts ddlrun on h1 and returns when all ranks are up."""
    with started_on_h1(hosts, ddlrun) as start:

        def on_h1(*words: str, ranks: int = 3) -> subprocess.Popen[str]:
            child = start(*words)
            up = read_lines(child, ranks)
            assert all(line.startswith("up") for line in up), (up, child.stderr and child.stderr.read())
            return child

        yield on_h1


@pytest.mark.parametrize(
    ("host", "victim", "code", "message"),
    [
        ("h2", "python ", 137, "rank 1 was killed by signal 9 (SIGKILL); on host h2"),
        ("h2", "{prefix}/bin/prted ", 1, "host h2 was lost"),
        ("h1", "{prefix}/bin/prterun ", 137, "mpirun was killed by signal 9 (SIGKILL)"),
    ],
    ids=["rank", "daemon", "mpirun"],
)
def test_after_a_kill_nothing_is_left(
    hosts: Cluster, begin: Begin, prefix: Path, host: str, victim: str, code: int, message: str
) -> None:
    child = begin("-H", "h1:1,h2:1,h3:1", *STUBBORN)
    assert any("4343" in words for words in processes(hosts, "h2").values())
    kill(hosts, host, victim.format(prefix=prefix))
    began = time.monotonic()
    _, err = child.communicate(timeout=30)
    assert (child.returncode, message in err) == (code, True), err
    assert_nothing_left(hosts, HOSTS, within=10 - (time.monotonic() - began))


def test_after_a_kill_of_ddlrun_itself_nothing_is_left(hosts: Cluster, begin: Begin, prefix: Path) -> None:
    child = begin("-H", "h1:1,h2:1,h3:1", *STUBBORN)
    kill(hosts, "h1", f"{prefix}/bin/python3 -I {prefix}/bin/ddlrun ")
    assert_nothing_left(hosts, HOSTS)
    assert child.wait(10) in (137, -9)


def test_the_supervisor_of_a_daemon_killed_too(hosts: Cluster, begin: Begin, prefix: Path) -> None:
    """The look at the hosts afterwards finds what has lost its daemon and the supervisor of that."""
    child = begin("-H", "h1:1,h2:1", "sh", "-c", "setsid sleep 4343 & echo up; sleep 300", ranks=2)
    hosts.run("h2", ["kill", "-STOP", *map(str, _daemons(hosts, prefix))], timeout=10, check=True)
    kill(hosts, "h2", f"{prefix}/bin/python3 -I -S ")
    kill(hosts, "h2", f"{prefix}/bin/prted ")
    _, err = child.communicate(timeout=30)
    assert "[WARN DDL-2-20]" in err and "on h2 and were killed" in err, err
    assert_nothing_left(hosts, HOSTS)


def _daemons(hosts: Cluster, prefix: Path) -> list[int]:
    return [pid for pid, words in processes(hosts, "h2").items() if words.startswith(f"{prefix}/bin/prted")]


def test_a_good_end_leaves_nothing_either(hosts: Cluster, begin: Begin) -> None:
    child = begin("-H", "h1:1,h2:1", "sh", "-c", "setsid sleep 4343 >/dev/null 2>&1 & echo up", ranks=2)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 0, err
    assert_nothing_left(hosts, HOSTS)


def test_a_host_whose_cable_is_pulled(hosts: Cluster, begin: Begin) -> None:
    """Neither side hears a last word of the other; both sides end their part."""
    child = begin("-H", "h1:1,h2:1", *STUBBORN, ranks=2)
    hosts.run("h2", ["ip", "link", "set", "eth0", "down"], timeout=10, check=True)
    try:
        assert_nothing_left(hosts, ["h2"], within=12)
        _, err = child.communicate(timeout=20)
        assert child.returncode == 1 and "host h2 was lost" in err, err
        assert_nothing_left(hosts, ["h1"], within=2)
    finally:
        hosts.run("h2", ["ip", "link", "set", "eth0", "up"], timeout=10, check=True)


def test_a_lost_host_is_named(hosts: Cluster, begin: Begin) -> None:
    child = begin("-H", "h1,h2,h3", *STUBBORN)
    hosts.kill_host("h3")
    began = time.monotonic()
    _, err = child.communicate(timeout=30)
    assert child.returncode == 1 and "[ERROR DDL-2-16] host h3 was lost" in err, err
    assert time.monotonic() - began < 10
    assert_nothing_left(hosts, ["h1", "h2"], within=1)
