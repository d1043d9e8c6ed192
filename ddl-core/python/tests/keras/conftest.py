"""The fixture of these tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from keras_ranks import KerasRanks


@pytest.fixture
def run_keras(tmp_path: Path) -> KerasRanks:
    """Runs programs as ranks or alone."""
    return KerasRanks(tmp_path)
