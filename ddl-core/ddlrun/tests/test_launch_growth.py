"""Emulated hosts that are lost and come back: the training goes on with fewer ranks, and with more again."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddlrun_program import Ddlrun
from emulated import assert_nothing_left, kill, processes, shared_folders, started_on_h1
from resumed_training import (
    DISTURBED,
    EXAMPLES,
    KERAS3,
    LENGTH,
    QUIET,
    TORCH,
    TRAIN,
    await_line,
    require,
    weights,
)

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements
from ddl_validate.cluster.requirements import program
from ddl_validate.cluster.ssh import server_settings

EXAMPLES_TRIED = [TRAIN, *(pytest.param(name, marks=pytest.mark.long) for name in (TORCH, KERAS3))]
LIMIT = 150


@pytest.fixture(scope="module")
def hosts(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    folder = tmp_path_factory.mktemp("cluster")
    settings = {"SHLVL": "1", "CHECKPOINTS": str(folder), "DDLRUN_GROW_SECONDS": "0.5", **QUIET}
    spec = ClusterSpec.even(
        hosts=3,
        shared=(*shared_folders(prefix), str(folder)),
        environment=settings,
        life_seconds=900,
    )
    with Cluster(spec, folder / "state") as cluster:
        yield cluster


@pytest.fixture
def undisturbed(ddlrun: Ddlrun) -> Callable[[str], list[float]]:
    def run(example: str) -> list[float]:
        require(ddlrun.prefix, example)
        folder = ddlrun.folder / "undisturbed"
        words = ["-np", "2", "-checkpoint-dir", str(folder), "python", str(EXAMPLES / example)]
        done = ddlrun(*words, *LENGTH[example], **QUIET)
        assert done.code == 0, done.err
        return weights(folder, ddlrun.prefix)

    return run


@pytest.fixture
def start(hosts: Cluster, ddlrun: Ddlrun) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    with started_on_h1(hosts, ddlrun) as begin:
        yield begin


def close(hosts: Cluster, host: str) -> None:
    """Nobody answers at the host's door any more."""
    door = hosts.run(host, ["pgrep", "-o", "sshd"], timeout=10, check=True).stdout.strip()
    hosts.run(host, ["kill", "-9", door], timeout=10, check=True)


def open_again(hosts: Cluster, host: str) -> None:
    spec = next(there for there in hosts.spec.hosts if there.name == host)
    hosts.run(host, [program("sshd"), "-f", str(server_settings(hosts.state, spec))], timeout=20, check=True)


def assert_close(ended: list[float], whole: list[float]) -> None:
    """Other numbers of ranks add in another order, in single precision."""
    assert len(ended) == len(whole) and ended == pytest.approx(whole, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("example", EXAMPLES_TRIED)
def test_a_host_is_lost_and_comes_back(
    hosts: Cluster,
    start: Callable[..., subprocess.Popen[str]],
    undisturbed: Callable[[str], list[float]],
    ddlrun: Ddlrun,
    example: str,
) -> None:
    whole = undisturbed(example)
    folder = Path(hosts.spec.environment["CHECKPOINTS"]) / f"back-{ddlrun.folder.name}"
    # Steps take long enough in the first run to lose a host, and in the second for a look at the hosts.
    words = ["-H", "h1,h2,h3", "-np", "2:3", "-max-restarts", "1", "-timeout", str(LIMIT)]
    script = ["python", DISTURBED, "0:0.1,1:0.5", str(EXAMPLES / example), *LENGTH[example]]
    child = start(*words, "-checkpoint-dir", str(folder), *script)
    seen = await_line(child, "step 10 " if example != KERAS3 else "epoch 1 on 3 ranks")
    close(hosts, "h3")
    kill(hosts, "h3", f"{ddlrun.prefix}/bin/prted ")
    seen += await_line(child, "2 ranks, from" if example != KERAS3 else "epoch 1 on 2 ranks")
    open_again(hosts, "h3")
    out, err = child.communicate(timeout=LIMIT)
    out = "".join(seen) + out
    assert child.returncode == 0, err
    assert re.search(r"\[WARN DDL-2-23\] restart 1 of 1, after: host h3 was lost; .*2 ranks on h1, h2, ", err)
    # The restart that adds ranks is none of the one that -max-restarts allows.
    growing = "restart with more ranks, after: h3 can take part again; 3 ranks on h1, h2, h3"
    assert f"[WARN DDL-2-23] {growing}" in err, err
    assert "started again after: h3 can take part again" in out
    begun = [int(step) for step in re.findall(r"ranks, from step (\d+)", out)]
    if begun:
        # Nothing is lost by growing: it waited for a checkpoint.
        assert begun[0] == 0 < begun[1] < begun[2]
    assert re.findall(r"^\[ERROR DDL-2-(\d+)\]", err, re.MULTILINE) == ["16"], err
    assert_close(weights(folder, ddlrun.prefix), whole)
    assert_nothing_left(hosts, ["h1", "h2", "h3"])


@pytest.mark.long
@pytest.mark.parametrize("example", [TORCH, KERAS3])
def test_a_host_stays_away(
    hosts: Cluster,
    start: Callable[..., subprocess.Popen[str]],
    undisturbed: Callable[[str], list[float]],
    ddlrun: Ddlrun,
    example: str,
) -> None:
    """The global batch is divided among the two hosts that are left."""
    whole = undisturbed(example)
    folder = Path(hosts.spec.environment["CHECKPOINTS"]) / f"away-{ddlrun.folder.name}"
    words = ["-H", "h1,h2,h3", "-np", "3", "-max-restarts", "2", "-min-hosts", "2", "-timeout", str(LIMIT)]
    script = ["python", DISTURBED, "0:0.1", str(EXAMPLES / example), *LENGTH[example]]
    child = start(*words, "-checkpoint-dir", str(folder), *script)
    await_line(child, "step 10 " if example != KERAS3 else "epoch 1 on 3 ranks")
    close(hosts, "h3")
    try:
        kill(hosts, "h3", f"{ddlrun.prefix}/bin/prted ")
        out, err = child.communicate(timeout=LIMIT)
    finally:
        open_again(hosts, "h3")
    assert child.returncode == 0, err
    assert "2 ranks on h1, h2, without h3" in err
    assert "2 ranks, from step 10" in out or "on 2 ranks, started again" in out
    assert_close(weights(folder, ddlrun.prefix), whole)


def test_a_signal_ends_a_job_that_looks_for_hosts(
    hosts: Cluster, start: Callable[..., subprocess.Popen[str]]
) -> None:
    """A host that is not there at the start; nothing of the look is left behind."""
    words = ["-H", "h1,h2,gone.invalid", "-np", "2:3", "-max-restarts", "1", "-timeout", "60"]
    child = start(*words, "sh", "-c", "echo begun; sleep 50")
    await_line(child, "begun")
    # The process that looks for hosts is a fork of ddlrun, with the same words and a later number.
    found = [pid for pid, words in processes(hosts, "h1").items() if "/bin/ddlrun -H h1,h2,gone" in words]
    ddlrun_pid = min(found)
    hosts.run("h1", ["kill", "-TERM", str(ddlrun_pid)], timeout=10, check=True)
    _, err = child.communicate(timeout=40)
    assert child.returncode == 128 + 15, err
    assert "[WARN DDL-2-4] without gone.invalid" in err and "more ranks" not in err
    assert "processes of the job were still running" not in err
    assert_nothing_left(hosts, ["h1", "h2"])
    assert os.path.exists(f"/proc/{child.pid}") is False
