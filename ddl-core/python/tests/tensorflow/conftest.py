"""The fixture of these tests."""

from __future__ import annotations

import pytest
from rank_launcher import Launcher


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    """Runs programs as ranks or alone."""
    return Launcher(tmp_path_factory)
