"""The sample in NumPy learns, with one rank and with two."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/numpy/regression.py"


@pytest.mark.parametrize("ranks", [1, 2])
def test_regression(mpirun: Any, ranks: int) -> None:
    job = mpirun(ranks, EXAMPLE) if ranks > 1 else mpirun.alone(EXAMPLE)
    assert job.status == 0, job.output
    assert re.findall(r"ranks (\d+)  test accuracy 0\.9", job.stdout) == [str(ranks)], job.output
