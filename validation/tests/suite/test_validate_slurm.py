"""`wmlce validate` in a job of a real Slurm over emulated hosts in two racks, of which it is told nothing."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from program_runner import ROOT, Environment

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements
from ddl_validate.cluster.slurm import Slurm, missing_slurm
from ddl_validate.common.mpi import MPI_AS_ROOT
from ddl_validate.suite import document as documents
from ddl_validate.suite.model import Figure, Status

HOSTS = [f"h{number}" for number in range(1, 9)]
#: Emulated hosts have no hardware ports and no GPUs, nobody has named a module or an image, and there is no
#: load for minutes at this level.
ELSEWHERE = {"fabric", "gpu", "sustained", "module", "image"}


def validated(env: Environment, folder: Path, *options: str) -> tuple[documents.Document, str]:
    """The document of a run in a job on all hosts, and what was printed. An uplink has a quarter of the rate
    of a rack's hosts.
    """
    reasons = missing_requirements() + missing_slurm()
    if reasons:
        pytest.skip("; ".join(reasons))
    shared = [path for path in (folder, env.prefix, ROOT) if path.is_relative_to("/tmp")]
    spec = ClusterSpec.even(
        hosts=len(HOSTS),
        racks=2,
        link_rate="400mbit",
        uplink_rate="400mbit",
        shared=tuple(map(str, shared)),
        # the hosts share the processors of this machine
        environment={**MPI_AS_ROOT, "OMPI_MCA_mpi_yield_when_idle": "1"},
        life_seconds=2400,
    )
    report, told = folder / "report", folder / "job.out"
    script = folder / "job.sh"
    command = [
        f"{env.prefix}/bin/wmlce-validate",
        "--ranks",
        "1",
        "--tolerance",
        "0.8",
        "--output",
        str(report),
    ]
    script.write_text(f"#!/bin/sh\nexec {shlex.join([*command, *options])}\n")
    with Cluster(spec) as cluster:
        slurm = Slurm(cluster)
        slurm.up()
        words = ["sbatch", "-W", "-N", str(len(HOSTS)), "-o", str(told), str(script)]
        done = slurm.run(words, timeout=2000, cwd=folder)
    output = told.read_text() if told.exists() else done.stderr
    assert done.returncode == 0, output
    document = documents.read(report / "validation.json")
    assert document.hosts == HOSTS and document.verdict == "passed", output
    assert document.racks == [0, 0, 0, 0, 1, 1, 1, 1], output
    return document, output


def figures(document: documents.Document, name: str) -> list[Figure]:
    return [figure for result in document.results for figure in result.figures if figure.name == name]


def test_racks_are_those_of_slurm(ddl_env: Environment, tmp_path: Path) -> None:
    document, output = validated(ddl_env, tmp_path, "--only", "links")
    assert "2 racks" in output
    assert {figure.where for figure in figures(document, "rack.bandwidth")} == {"rack 0", "rack 1"}
    assert {figure.where for figure in figures(document, "link.bandwidth")} == {
        f"host {host}" for host in HOSTS
    }


@pytest.mark.long
def test_smoke_on_the_hosts_of_a_job(ddl_env: Environment, tmp_path: Path) -> None:
    document, output = validated(ddl_env, tmp_path, "--site", "emulated")
    states = {result.name: result.status for result in document.results}
    assert {name for name, status in states.items() if status is Status.SKIPPED} == ELSEWHERE, output
    assert {name for name, status in states.items() if status is not Status.SKIPPED} >= {
        *("environment", "imports", "hosts", "links", "sums", "allreduce", "training", "frameworks"),
    }
    trained = {figure.scale["hosts"] for figure in figures(document, "training.ddl.images_per_sec")}
    assert trained == {1, 8} or trained == {8}, trained
    page = (tmp_path / "report/index.html").read_text()
    assert all(host in page for host in HOSTS) and "<svg" in page
