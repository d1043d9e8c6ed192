"""Makes ddlrun importable without the native library, and finds the environment under test."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from rank_processes import PREFIX, ROOT

PACKAGE = ROOT / "ddl-core/python/ddl/launch"


def _import_launch() -> None:
    """As `launch`: importing it as ddl.launch would run ddl/__init__, which needs the compiled library."""
    spec = importlib.util.spec_from_file_location(
        "launch", PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)]
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["launch"] = module
    spec.loader.exec_module(module)


_import_launch()

from ddlrun_program import Ddlrun  # noqa: E402  (needs the lines above)
from nvml_standin import Look  # noqa: E402


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
