"""The example learns, with one rank and with two, and only rank 0 writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/pytorch/digits.py"


@pytest.mark.parametrize(
    ("ranks", "flags"),
    [
        pytest.param(1, (), marks=pytest.mark.long),
        (2, ()),
        pytest.param(2, ("--device=cpu", "--use_fp16"), marks=pytest.mark.long),
    ],
)
def test_example(jobs: Any, tmp_path: Path, ranks: int, flags: tuple[str, ...]) -> None:
    folder = str(tmp_path / "results")
    words = (EXAMPLE.read_text(), "--folder", folder, *flags)
    job = jobs.ddlrun(ranks, *words) if ranks > 1 else jobs.alone(*words)
    assert job.status == 0, job.out + job.err
    assert re.findall(r"ranks (\d+)  test accuracy (?:0\.[89]|1\.0)", job.out) == [str(ranks)], job.out
    assert job.out.count("epoch 6 ") == 1
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["digits.pt"]
