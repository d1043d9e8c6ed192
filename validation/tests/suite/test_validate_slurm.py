"""`wmlce validate` in a job of a real Slurm over emulated hosts: all checks of the level `smoke`."""

from __future__ import annotations

from pathlib import Path

import pytest
from program_runner import ROOT, Environment

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements
from ddl_validate.cluster.slurm import Slurm, missing_slurm
from ddl_validate.common.mpi import MPI_AS_ROOT
from ddl_validate.suite import document as documents
from ddl_validate.suite.model import Status

HOSTS = ["h1", "h2", "h3", "h4"]
#: Emulated hosts have no hardware ports and no GPUs, nobody has named a module or an image, and there is no
#: load for minutes at this level.
ELSEWHERE = {"fabric", "gpu", "sustained", "module", "image"}


@pytest.mark.long
def test_smoke_on_four_hosts_of_a_job(ddl_env: Environment, tmp_path: Path) -> None:
    reasons = missing_requirements() + missing_slurm()
    if reasons:
        pytest.skip("; ".join(reasons))
    shared = [path for path in (tmp_path, ddl_env.prefix, ROOT) if path.is_relative_to("/tmp")]
    spec = ClusterSpec.even(
        hosts=len(HOSTS),
        shared=tuple(map(str, shared)),
        # the hosts share the processors of this machine
        environment={**MPI_AS_ROOT, "OMPI_MCA_mpi_yield_when_idle": "1"},
        life_seconds=1200,
    )
    report, told = tmp_path / "report", tmp_path / "job.out"
    script = tmp_path / "job.sh"
    script.write_text(
        f"""#!/bin/sh
exec "{ddl_env.prefix}/bin/wmlce-validate" --site emulated --ranks 1 --tolerance 0.8 --output "{report}"
"""
    )
    with Cluster(spec) as cluster:
        slurm = Slurm(cluster)
        slurm.up()
        words = ["sbatch", "-W", "-N", str(len(HOSTS)), "-o", str(told), str(script)]
        done = slurm.run(words, timeout=1000, cwd=tmp_path)
    output = told.read_text() if told.exists() else done.stderr
    assert done.returncode == 0, output
    document = documents.read(report / "validation.json")
    assert document.hosts == HOSTS and document.verdict == "passed"
    states = {result.name: result.status for result in document.results}
    assert {name for name, status in states.items() if status is Status.SKIPPED} == ELSEWHERE, output
    assert {name for name, status in states.items() if status is not Status.SKIPPED} >= {
        *("environment", "imports", "hosts", "links", "sums", "allreduce", "training", "frameworks"),
    }
    figures = [figure for result in document.results for figure in result.figures]
    assert {figure.where for figure in figures if figure.name == "link.bandwidth"} == {
        f"host {host}" for host in HOSTS
    }
    trained = {figure.scale["hosts"] for figure in figures if figure.name == "training.ddl.images_per_sec"}
    assert trained == {1, 4} or trained == {4}, trained
    page = (report / "index.html").read_text()
    assert all(host in page for host in HOSTS) and "<svg" in page
