"""The environment under test, and ddlrun in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ddlrun_program import Ddlrun
from nvml_standin import Look
from rank_processes import PREFIX, ROOT


@pytest.fixture(scope="session")
def prefix() -> Path:
    """The environment under test."""
    if not os.access(PREFIX / "bin/mpirun", os.X_OK):
        pytest.skip(f"no environment with mpirun in {PREFIX}: build it, or set DDL_TEST_PREFIX")
    return PREFIX


@pytest.fixture
def ddlrun(prefix: Path, tmp_path: Path) -> Ddlrun:
    """Starts the real ddlrun of the environment under test (the tree's, where that has none)."""
    return Ddlrun(prefix, ROOT, tmp_path)


@pytest.fixture
def look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Looks at machines with GPUs that stand-ins make."""
    return Look(tmp_path, monkeypatch)
