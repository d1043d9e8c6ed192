"""The environment in which Large Model Support is tested."""

from __future__ import annotations

from pathlib import Path

import pytest
from lms_programs import Programs
from rank_processes import PREFIX


@pytest.fixture(scope="session")
def prefix() -> Path:
    """The environment under test."""
    if not (PREFIX / "bin/python").exists():
        pytest.fail(f"no environment in {PREFIX}: run ci/quickstart, or set DDL_TEST_PREFIX")
    return PREFIX


@pytest.fixture
def programs(prefix: Path, tmp_path: Path) -> Programs:
    return Programs(prefix, tmp_path)
