"""The environments that sweeps are tested in."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_processes import PREFIX, prefix_with
from sweep_process import Python


@pytest.fixture(scope="session")
def prefix() -> Path:
    """The environment under test."""
    if not (PREFIX / "bin/python").exists():
        pytest.skip(f"no environment in {PREFIX}: build it, or set DDL_TEST_PREFIX")
    return PREFIX


@pytest.fixture
def python(prefix: Path, tmp_path: Path) -> Python:
    return Python(prefix, tmp_path)


@pytest.fixture(scope="session")
def env() -> Path:
    """An environment with all engines."""
    packages = ("dask", "dask-jobqueue", "optuna", "pyspark", "tensorflowonspark")
    file = "lib/python3*/site-packages/dask_jobqueue/__init__.py"
    return prefix_with(file, "ddl-engines", "powerai", *packages)


@pytest.fixture
def engines(env: Path, tmp_path: Path) -> Python:
    """The Python of that environment."""
    return Python(env, tmp_path)
