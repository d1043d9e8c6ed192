"""A site's pipeline as a Slurm job, from the channel to the report: packages of the built channel, a module
of them, and a validation of emulated hosts under a real Slurm.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tree import ROOT

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements
from ddl_validate.cluster.slurm import Slurm, missing_slurm
from ddl_validate.common.mpi import MPI_AS_ROOT
from ddl_validate.suite.model import EXIT_CODES, Kind

CHANNEL = ROOT / "build/channel"
#: The validation and DDL, without frameworks; and what says little about speed.
SMALL = {"WMLCE_PACKAGES": "ddl-bench", "WMLCE_VALIDATE_OPTIONS": "--only environment,fabric,sums"}


@dataclass(frozen=True)
class Site:
    """A site whose software and results are on a file system that all hosts see."""

    slurm: Slurm
    folder: Path

    def submit(self, limit: float, hosts: int, **settings: str) -> subprocess.CompletedProcess[str]:
        """The Slurm script, until its job ends; its exit code is the job's."""
        output = self.folder / "job.out"
        words = ["sbatch", "-W", "-N", str(hosts), "-o", str(output), str(ROOT / "ci/pipelines/slurm.sbatch")]
        done = self.slurm.run(
            [*words, str(self.folder / "site.env")],
            timeout=limit,
            env={"WMLCE_CLONE": str(ROOT), **settings},
            cwd=self.folder,
        )
        told = output.read_text() if output.exists() else ""
        return subprocess.CompletedProcess(done.args, done.returncode, told, done.stderr)

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self.folder / "results/latest/report/validation.json").read_text()
        )
        return found

    def default(self) -> str:
        return (self.folder / "sw/modulefiles/ibm-wml-ce/.modulerc").read_text()


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    reasons = missing_requirements() + missing_slurm()
    if reasons:
        pytest.skip("; ".join(reasons))
    if not (CHANNEL / "channel.json").is_file():
        pytest.skip(f"no channel in {CHANNEL}: wmlce channel build")
    shared = (str(ROOT),) if ROOT.is_relative_to("/tmp") else ()
    environment = {**MPI_AS_ROOT, "OMPI_MCA_mpi_yield_when_idle": "1"}
    spec = ClusterSpec.even(hosts=4, shared=shared, environment=environment, life_seconds=900)
    with Cluster(spec) as cluster:
        made = Slurm(cluster)
        made.up()
        yield made


@pytest.fixture(scope="module")
def site(slurm: Slurm) -> Site:
    folder = slurm.cluster.state / "site"
    folder.mkdir()
    # the tools that are at work here, which need not be those of build/tools
    wmlce, path = folder / "wmlce", os.pathsep.join([str(ROOT / "ci"), *sys.path])
    wmlce.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" -m wmlce "$@"\n')
    wmlce.chmod(0o755)
    (folder / "site.env").write_text(
        f"""WMLCE_COMMAND={wmlce}
WMLCE_SITE=emulated
WMLCE_CHANNEL={CHANNEL}
WMLCE_MIRROR={folder}/mirror
WMLCE_TREE={folder}/sw
WMLCE_MODULE_OPTIONS=--no-compile
WMLCE_RESULTS={folder}/results
"""
    )
    return Site(slurm, folder)


@pytest.fixture(scope="module")
def passed(site: Site) -> tuple[subprocess.CompletedProcess[str], dict[str, Any], str]:
    """The first job, its document, and the default version afterwards."""
    done = site.submit(240, 4, WMLCE_MODULE_VERSION="1", **SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    return done, site.document(), site.default()


def test_the_hosts_of_the_job_are_validated_with_the_installed_module(
    passed: tuple[subprocess.CompletedProcess[str], dict[str, Any], str], site: Site
) -> None:
    done, document, default = passed
    assert document["hosts"] == ["h1", "h2", "h3", "h4"] and document["verdict"] == "passed"
    assert document["site"] == "emulated"
    states = {check["name"]: check["status"] for check in document["checks"]}
    assert states["environment"] == states["sums"] == "passed"
    home = f"{site.folder}/sw/ibm-wml-ce/1"
    assert f"validate: {home}/bin/wmlce-validate" in done.stdout
    sums = next(check for check in document["checks"] if check["name"] == "sums")
    assert f"{home}/bin/ddlrun" in sums["commands"][0]
    assert "ibm-wml-ce/1 default" in default


def test_the_report_is_there_to_be_served(
    passed: tuple[subprocess.CompletedProcess[str], dict[str, Any], str], site: Site
) -> None:
    latest = site.folder / "results/latest"
    page = (latest / "report/index.html").read_text()
    assert "<html" in page and "h4" in page
    assert (latest / "report/junit.xml").is_file() and (latest / "exit-code").read_text() == "0\n"
    assert (latest / "report/index.html").stat().st_mode & 0o004
    assert len(list((site.folder / "results/history").glob("*.json"))) >= 1


def test_a_finding_ends_the_job_with_its_code(
    passed: tuple[subprocess.CompletedProcess[str], dict[str, Any], str], site: Site
) -> None:
    """By a reference that no host reaches; the report is published nevertheless."""
    reference = site.folder / "reference.json"
    figure = {"name": "host.memory", "where": "host h2", "value": 1e16, "tolerance": 0.2}
    reference.write_text(json.dumps({"figures": [figure]}))
    options = f"--only environment,hosts --tolerance 0.9 --reference {reference}"
    settings = {**SMALL, "WMLCE_MODULE_VERSION": "1", "WMLCE_VALIDATE_OPTIONS": options}
    done = site.submit(240, 2, **settings)
    assert done.returncode == EXIT_CODES[Kind.SLOW_MEMORY], done.stdout + done.stderr
    document = site.document()
    (finding,) = [one for check in document["checks"] for one in check["findings"]]
    assert finding["where"] == "host h2" and "the reference says 1e+16" in finding["text"]


@pytest.mark.long
def test_the_whole_environment(site: Site) -> None:
    """All packages of powerai, and all checks but those of speed: the hosts share one machine."""
    # without `module`: these hosts know no modules of this tree
    checks = "environment,imports,sums,frameworks,fabric,gpu,image"
    options = f"--only {checks} --ranks 1"
    done = site.submit(840, 2, WMLCE_MODULE_VERSION="2", WMLCE_VALIDATE_OPTIONS=options)
    assert done.returncode == 0, done.stdout + done.stderr
    document = site.document()
    states = {check["name"]: check["status"] for check in document["checks"]}
    assert {name for name, state in states.items() if state == "passed"} >= {
        *("environment", "imports", "sums", "frameworks"),
    }
    assert "ibm-wml-ce/2 default" in site.default()
