"""The image on each host, as `wmlce validate` checks it: with the real Apptainer on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from images import CROWDED, Singularity
from tree import ROOT

from ddl_validate.suite.bench import Bench, Host
from ddl_validate.suite.checks import image
from ddl_validate.suite.levels import LEVELS
from ddl_validate.suite.model import CheckResult, Kind, Status

PREFIX = Path(os.environ.get("DDL_TEST_PREFIX") or ROOT / "build/envs/powerai")


def check(folder: Path, prefix: Path = PREFIX) -> CheckResult:
    hosts = (Host("localhost", 2, 0, {}),)
    bench = Bench(prefix, (), hosts, False, 2, 0, LEVELS["smoke"], 0.3, folder, lambda _: None)
    return image.check(bench, [])


@pytest.fixture
def with_apptainer(singularity: Singularity, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (PREFIX / "bin/ddlrun").exists():
        pytest.skip(f"no environment in {PREFIX}: run ci/quickstart, or set DDL_TEST_PREFIX")
    for name, value in {**CROWDED, **singularity.variables}.items():
        monkeypatch.setenv(name, value)


def test_an_image_that_works(
    with_apptainer: None, small_image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WMLCE_IMAGE", str(small_image))
    result = check(tmp_path)
    assert result.status is Status.PASSED, result
    # what the host has was not looked at
    facts = result.facts["hosts"]["localhost"]
    assert facts["loaded_mpi_path"].startswith("/opt/ibm-wml-ce/")
    assert result.facts["sum"] == {"ranks": 1, "right": True, "inside": True}
    assert len(result.commands) == 2 and all(str(small_image) in command for command in result.commands)


def test_a_file_that_is_no_image(
    with_apptainer: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.sif"
    broken.write_text("no image\n")
    monkeypatch.setenv("WMLCE_IMAGE", str(broken))
    result = check(tmp_path)
    assert result.status is Status.FAILED
    (finding,) = result.findings
    assert finding.kind is Kind.ENVIRONMENT and "broken.sif" in finding.text, finding


def test_a_file_that_is_missing(
    with_apptainer: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WMLCE_IMAGE", str(tmp_path / "none.sif"))
    result = check(tmp_path)
    assert result.status is Status.FAILED and "none.sif: there is no such file" in result.findings[0].text


def test_without_an_image_or_a_program_it_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WMLCE_IMAGE", raising=False)
    result = check(tmp_path)
    assert result.status is Status.SKIPPED and "set WMLCE_IMAGE=FILE.sif" in result.reason
    monkeypatch.setenv("WMLCE_IMAGE", "ddl.sif")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("DDL_IMAGE_PROGRAM", raising=False)
    result = check(tmp_path)
    assert result.status is Status.SKIPPED and "neither apptainer nor singularity" in result.reason
