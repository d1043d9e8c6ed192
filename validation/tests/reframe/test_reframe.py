"""The checks carried by the real ReFrame, with its local scheduler: what passes, fails and is skipped, and
figures with references.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from program_runner import PYTHONPATH, ROOT, Environment

from ddl_validate.common.mpi import MPI_AS_ROOT
from ddl_validate.suite import registry
from ddl_validate.suite.levels import LEVELS

CHECKS = ROOT / "validation/ddl_validate/reframe"
#: What `wmlce validate` calls this machine.
HOST = socket.gethostname().partition(".")[0]


@dataclass(frozen=True)
class ReFrame:
    """folder: where it works. cases: of the last run, by the name of the check."""

    folder: Path
    path: str

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        reframe = Path(sys.executable).parent / "reframe"
        command = [str(reframe), "--nocolor", "-C", str(CHECKS / "site.py"), "--system", "this-machine"]
        return subprocess.run(
            [*command, "-c", str(CHECKS / "cluster.py"), *words],
            cwd=self.folder,
            env={**os.environ, **MPI_AS_ROOT, "PATH": self.path, "HOME": str(self.folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
        )

    def cases(self) -> dict[str, dict[str, Any]]:
        report = json.loads((self.folder / "reframe-report.json").read_text())
        return {case["check"]: case for case in report["runs"][0]["testcases"]}


@pytest.fixture(scope="module")
def reframe(env: Environment, tmp_path_factory: pytest.TempPathFactory) -> ReFrame:
    """ReFrame, with `wmlce-validate` of this tree and the environment under test on PATH."""
    if not (Path(sys.executable).parent / "reframe").exists():
        pytest.fail("reframe is not in the tool environment: ci/requirements-test.lock must hold it")
    folder = tmp_path_factory.mktemp("reframe")
    program = folder / "bin/wmlce-validate"
    program.parent.mkdir()
    words = f'"{sys.executable}" -m ddl_validate.suite --prefix "{env.prefix}"'
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{PYTHONPATH}" exec {words} "$@"\n')
    program.chmod(0o755)
    return ReFrame(folder, os.pathsep.join([str(program.parent), os.environ["PATH"]]))


def listed(told: str) -> set[tuple[str, str]]:
    return set(re.findall(r"%check=(\S+) %level=(\S+)", told))


@pytest.mark.parametrize("tags", [["smoke"], ["daily", "links"], ["burn-in", "training"]])
def test_tags_choose_levels_and_checks(reframe: ReFrame, tags: Sequence[str]) -> None:
    done = reframe("--list", *(word for tag in tags for word in ("--tag", tag)))
    assert done.returncode == 0, done.stdout + done.stderr
    level, *checks = tags
    names = checks or [name for name in registry.ORDER if name != "published"]
    assert listed(done.stdout) == {(name, level) for name in names}


def test_every_level_has_tests(reframe: ReFrame) -> None:
    assert {level for _, level in listed(reframe("--list").stdout)} == set(LEVELS)


@pytest.fixture(scope="module")
def cases(reframe: ReFrame) -> dict[str, dict[str, Any]]:
    """Checks that are made in a second, against a reference that no machine reaches."""
    reference = reframe.folder / "reference.json"
    figure = {"name": "host.memory", "where": f"host {HOST}", "value": 1e16, "tolerance": 0.2}
    reference.write_text(json.dumps({"figures": [figure]}))
    done = reframe(
        *("--tag", "smoke", "--name", "check=(environment|image|hosts)", "--run"),
        *("-S", f"reference_file={reference}"),
    )
    assert done.returncode == 1, done.stdout + done.stderr  # as one failed
    return reframe.cases()


def test_a_check_that_finds_nothing_passes(cases: dict[str, dict[str, Any]]) -> None:
    assert cases["environment"]["result"] == "pass", cases["environment"]["fail_reason"]


def test_a_check_that_cannot_be_made_is_skipped(cases: dict[str, dict[str, Any]]) -> None:
    assert cases["image"]["result"] == "skip"


def test_a_finding_fails_with_its_text(cases: dict[str, dict[str, Any]]) -> None:
    case = cases["hosts"]
    assert case["result"] == "fail" and case["fail_phase"] == "sanity"
    assert "the reference says 1e+16" in case["fail_reason"], case["fail_reason"]


def test_figures_are_performance_variables_with_references(reframe: ReFrame) -> None:
    reference = reframe.folder / "good.json"
    figure = {"name": "host.memory", "where": f"host {HOST}", "value": 1e6, "tolerance": 0.25}
    reference.write_text(json.dumps({"figures": [figure]}))
    words = ["--tag", "smoke", "--tag", "hosts", "--run", "-S", f"reference_file={reference}"]
    done = reframe(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    case = reframe.cases()["hosts"]
    assert case["result"] == "pass", case["fail_reason"]
    figures = {name.rpartition(":")[2]: told for name, told in case["perfvalues"].items()}
    value, expected, lower, upper, unit = figures[f"host.memory host {HOST}"][:5]
    assert value > 1e6 and (expected, lower, upper, unit) == (1e6, -0.25, None, "B/s")
    assert figures[f"host.compute host {HOST}"][0] > 0
    log = (reframe.folder / "perflogs/this-machine/default/ClusterValidation.log").read_text()
    assert f"host.memory host {HOST}" in log


def test_hosts_that_cannot_be_reached_are_told(reframe: ReFrame) -> None:
    done = reframe("--tag", "smoke", "--tag", "fabric", "--run", "-S", "hosts=no-such-host.invalid")
    assert done.returncode == 1
    reason = reframe.cases()["fabric"]["fail_reason"]
    assert "no-such-host.invalid" in reason, reason
