"""The examples learn, with one rank and with two, and only rank 0 writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples/horovod"


@pytest.mark.parametrize(
    ("ranks", "flags"),
    [
        pytest.param(1, (), marks=pytest.mark.long),
        (2, ()),
        pytest.param(2, ("--device=cpu", "--use_fp16"), marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize(
    ("name", "written"), [("torch_digits.py", "digits.pt"), ("keras_digits.py", "digits.keras")]
)
def test_example(
    jobs: Any, tmp_path: Path, name: str, written: str, ranks: int, flags: tuple[str, ...]
) -> None:
    words = ((EXAMPLES / name).read_text(), "--folder", str(tmp_path / "results"), *flags)
    job = jobs.ddlrun(ranks, *words) if ranks > 1 else jobs.alone(*words)
    assert job.status == 0, job.out + job.err
    assert re.findall(r"ranks (\d+)  test accuracy (?:0\.[89]|1\.0)", job.out) == [str(ranks)], job.out
    assert [path.name for path in (tmp_path / "results").iterdir()] == [written]
