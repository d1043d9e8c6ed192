"""The examples learn, with one rank and with two, and only rank 0 writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples/horovod"
ONCE = ("--batch-size=1", "--num-warmup-batches=1", "--num-batches-per-iter=1", "--num-iters=2", "--no-cuda")


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


@pytest.mark.parametrize(
    ("framework", "flags"),
    [
        ("pytorch", ("--fp16-allreduce",)),
        pytest.param("pytorch", ("--use-adasum",), marks=pytest.mark.long),
        ("tensorflow2", ("--model=MobileNetV2", "--fp16-allreduce")),
        pytest.param("tensorflow2", ("--model=MobileNetV2", "--eager"), marks=pytest.mark.long),
    ],
)
def test_benchmark(jobs: Any, framework: str, flags: tuple[str, ...]) -> None:
    """It prints what those that read such benchmarks look for; the total is that of both ranks."""
    job = jobs.ddlrun(2, (EXAMPLES / f"{framework}_synthetic_benchmark.py").read_text(), *ONCE, *flags)
    assert job.status == 0, job.out + job.err
    assert re.search(r"^Model: \S+\nBatch size: 1\nNumber of CPUs: 2$", job.out, re.MULTILINE), job.out
    assert re.findall(r"^Iter #(\d): \d+\.\d img/sec per CPU$", job.out, re.MULTILINE) == ["0", "1"], job.out
    [each] = re.findall(r"^Img/sec per CPU: (\S+) \+-\d+\.\d$", job.out, re.MULTILINE)
    [total] = re.findall(r"^Total img/sec on 2 CPU\(s\): (\S+) \+-\d+\.\d$", job.out, re.MULTILINE)
    assert float(total) == pytest.approx(2 * float(each), abs=0.16)
