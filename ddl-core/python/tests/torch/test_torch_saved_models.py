"""State dicts travel: what DDL or Horovod saves goes on in a plain process, and the reverse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

Arrays = dict[str, np.ndarray[Any, Any]]


def train(jobs: Any, phase: str, by: str, files: Path, results: Path) -> list[Arrays]:
    """The weights behind a phase, rank by rank."""
    words = ("saved_models.py", phase, by, str(files), str(results))
    ranks = 1 if by == "alone" else 2
    job = jobs.alone(*words) if by == "alone" else jobs.mpirun(ranks, *words)
    assert job.status == 0, job.err
    return [dict(np.load(results / f"{phase}-{by}-rank{rank}.npz")) for rank in range(ranks)]


def assert_close(some: Arrays, others: Arrays) -> None:
    assert some.keys() == others.keys()
    for name, value in some.items():
        np.testing.assert_allclose(value, others[name], rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("by", ["ddl", "horovod"])
def test_go_on(jobs: Any, by: str, tmp_path: Path) -> None:
    alone, other, results = tmp_path / "alone", tmp_path / "other", tmp_path / "results"
    for folder in (alone, other, results):
        folder.mkdir()
    (saved,) = train(jobs, "save", "alone", alone, results)
    for weights in train(jobs, "save", by, other, results):
        assert_close(weights, saved)
    (wanted,) = train(jobs, "go_on", "alone", alone, results)
    assert all(np.abs(value - saved[name]).max() > 1e-4 for name, value in wanted.items())
    for weights in train(jobs, "go_on", by, alone, results):
        assert_close(weights, wanted)
    (result,) = train(jobs, "go_on", "alone", other, results)
    assert_close(result, wanted)
