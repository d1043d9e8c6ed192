"""Emulated hosts for the tests of ddlrun, what runs on them, and how it is killed."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import rank_processes
from ddlrun_program import Ddlrun

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements
from ddl_validate.cluster.slurm import Slurm, missing_slurm

ROOT = Path(__file__).resolve().parents[3]


def shared_folders(prefix: Path) -> tuple[str, ...]:
    """What all hosts must see and would not, each having its own /tmp."""
    return tuple(str(path) for path in (prefix, ROOT) if path.is_relative_to("/tmp"))


@contextmanager
def started_slurm(spec: ClusterSpec, state: Path, **more: str) -> Iterator[Slurm]:
    """A real Slurm on emulated hosts; where there cannot be one, the test is skipped. more: as for Slurm."""
    reasons = missing_requirements() + missing_slurm()
    if reasons:
        pytest.skip("; ".join(reasons))
    with Cluster(spec, state) as cluster:
        made = Slurm(cluster, **more)
        made.up()
        yield made


@contextmanager
def started_on_h1(hosts: Cluster, ddlrun: Ddlrun) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ddlrun with these words on h1; what still runs at the end is killed."""
    begun: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = hosts.command("h1", [*ddlrun.words, *words], env=ddlrun.variables)
        begun.append(rank_processes.start(command, os.environ, own_session=False))
        return begun[-1]

    yield start
    for child in begun:
        if child.poll() is None:
            child.kill()
        child.communicate(timeout=20)


def processes(cluster: Cluster, host: str) -> dict[int, str]:
    """Command lines of the live processes of a host, without its own (init and sshd's listener)."""
    listed = cluster.run(host, ["ps", "-ewwo", "pid=,ppid=,stat=,args="], timeout=20, check=True).stdout
    found = {}
    for line in listed.splitlines():
        pid, parent, state, words = line.split(None, 3)
        own = pid == "1" or state.startswith("Z") or words.startswith(("ps -ewwo", "sshd: /", "sshd: root"))
        if not own and (parent != "0" or "ps -ewwo" not in words):
            found[int(pid)] = words
    return found


def kill(cluster: Cluster, host: str, pattern: str) -> None:
    """SIGKILL to the processes of a host whose command line begins with this."""
    pids = [pid for pid, words in processes(cluster, host).items() if words.startswith(pattern)]
    assert pids, (pattern, processes(cluster, host))
    cluster.run(host, ["kill", "-9", *map(str, pids)], timeout=20, check=True)


def assert_nothing_left(cluster: Cluster, hosts: Sequence[str], within: float = 10.0) -> float:
    """Waits until no process is left on the hosts; how long that took."""
    began = time.monotonic()
    while left := {host: found for host in hosts if (found := processes(cluster, host))}:
        assert time.monotonic() - began < within, left
        time.sleep(0.2)
    return time.monotonic() - began


def read_lines(child: subprocess.Popen[str], count: int) -> list[str]:
    assert child.stdout
    return [child.stdout.readline() for _ in range(count)]
