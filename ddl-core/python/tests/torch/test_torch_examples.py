"""The examples learn, with one rank and with two, and only rank 0 writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples/pytorch"
LEARNED = re.compile(r"ranks (\d+)  test accuracy (?:0\.[89]|1\.0)")


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
    words = ((EXAMPLES / "digits.py").read_text(), "--folder", folder, *flags)
    job = jobs.ddlrun(ranks, *words) if ranks > 1 else jobs.alone(*words)
    assert job.status == 0, job.out + job.err
    assert LEARNED.findall(job.out) == [str(ranks)], job.out
    assert job.out.count("epoch 6 ") == 1
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["digits.pt"]


@pytest.mark.parametrize(
    ("ranks", "backend"),
    [
        pytest.param(1, "ddl", marks=pytest.mark.long),
        (2, "ddl"),
        pytest.param(2, "gloo", marks=pytest.mark.long),
    ],
)
def test_sample_with_the_name_of_wml_ce(jobs: Any, ranks: int, backend: str) -> None:
    words = ((EXAMPLES / "mnist/mnist_ddp.py").read_text(), "--dist-backend", backend, "--no-cuda")
    job = jobs.ddlrun(ranks, *words) if ranks > 1 else jobs.alone(*words)
    assert job.status == 0, job.out + job.err
    assert LEARNED.findall(job.out) == [str(ranks)], job.out
    assert job.out.count("epoch 6 step 20 of ") == 1, job.out
