"""Restarts inside jobs of a real Slurm: what is killed comes back, a host that is gone is left out."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddlrun_program import Ddlrun
from emulated import ROOT, kill, processes, read_lines, shared_folders, started_slurm

from ddl_validate.cluster import ClusterSpec
from ddl_validate.cluster.slurm import Slurm

pytestmark = pytest.mark.long

TRAIN = str(ROOT / "ddl-core/examples/resume/train.py")


@pytest.fixture(scope="module")
def slurm(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("checkpoints")
    spec = ClusterSpec.even(
        hosts=3,
        shared=(*shared_folders(prefix), str(folder)),
        environment={"SHLVL": "1", "CHECKPOINTS": str(folder)},
        life_seconds=600,
    )
    with started_slurm(spec, tmp_path_factory.mktemp("slurm") / "state") as made:
        yield made


def test_a_killed_rank_and_then_a_lost_host(slurm: Slurm, ddlrun: Ddlrun, prefix: Path) -> None:
    checkpoints = Path(slurm.cluster.spec.environment["CHECKPOINTS"]) / "c"
    line = [
        *("salloc", "--quiet", "--no-kill", "-N3", *ddlrun.words, "-timeout", "50", "-max-restarts", "2"),
        *("-min-hosts", "2", "-checkpoint-dir", str(checkpoints), "python", TRAIN, "--steps", "60"),
        *("--every", "5", "--pause", "0.05"),
    ]
    child = subprocess.Popen(
        slurm.cluster.command("h1", line, env={**slurm.environment, **ddlrun.variables}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    seen: list[str] = []

    def await_line(beginning: str) -> None:
        while not seen or not seen[-1].startswith(beginning):
            seen.extend(read_lines(child, 1))
            assert seen[-1], (seen, child.communicate(timeout=30)[1])

    try:
        await_line("step 10 ")
        kill(slurm.cluster, "h2", f"python {TRAIN}")
        await_line("step 25 ")
        slurm.cluster.kill_host("h3")
        out, err = child.communicate(timeout=90)
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate(timeout=20)
    out = "".join(seen) + out
    assert child.returncode == 0, err
    assert "restart 1 of 2, after: rank 1 was killed by signal 9 (SIGKILL); on host h2; 3 ranks" in err, err
    assert "restart 2 of 2, after: host h3 was lost; " in err and "; 2 ranks on h1, h2, without h3" in err, (
        err
    )
    assert "step 60 loss" in out
    for host in ("h1", "h2"):
        left = [words for words in processes(slurm.cluster, host).values() if TRAIN in words]
        assert not left
