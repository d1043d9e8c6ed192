"""Sweeps by dask's workers on this machine; those in Slurm's jobs are in test_sweep_slurm.py."""

from __future__ import annotations

from pathlib import Path

from sweep_process import PROGRAMS, Python, assert_like_a_plain_loop


def test_workers_of_a_client(engines: Python, tmp_path: Path) -> None:
    told = engines(PROGRAMS / "on_dask.py", tmp_path / "sweeps", limit=400).json
    assert_like_a_plain_loop(told["grid"])
    rows, starts = told["lost"]
    assert [(row["status"], row["y"]) for row in rows] == [("done", 0.0), ("done", 1.0), ("done", 2.0)]
    assert starts == [1, 2, 1], "the trial of the killed worker runs again, and no other"
