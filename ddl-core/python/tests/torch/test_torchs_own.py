"""torch's own tests of torch.distributed, as the wheel has them: what runs on gloo runs on ddl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from overlays import overlay

RANKS = 4
PARTS = 4
PROGRAM = "torchs_own.py"
#: Pass on gloo and not on ddl.
EXCEPTIONS = {
    "test_ddp_logging_data_cpu": "torch calls every backend that it does not bring along `custom` there",
    **dict.fromkeys(
        ("test_monitored_barrier_gloo", "test_monitored_barrier_gloo_subgroup"),
        "torch.distributed.monitored_barrier refuses all backends but gloo",
    ),
    "test_monitored_barrier_gloo_rank_0_timeout": "asks for the words of gloo's error",
}


def _run(jobs: Any, folder: Path, backend: str, which: list[str]) -> dict[str, str]:
    folder.mkdir()
    job = jobs.mpirun(
        RANKS,
        PROGRAM,
        backend,
        str(folder),
        *which,
        PYTHONPATH=str(overlay("torchs-own")),
        OMP_NUM_THREADS="1",
    )
    # each process group adds a prefix to torch's log
    said = "\n".join(line for line in job.err.splitlines() if "[rank" not in line)
    outcomes = folder / "outcomes.json"
    assert outcomes.exists(), f"status {job.status} in {said[-3000:]}"
    return json.loads(outcomes.read_text())


# Each part is every fourth of them.
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in (1, 2, 3))])
def test_what_passes_on_gloo_passes_on_ddl(jobs: Any, tmp_path: Path, part: int) -> None:
    on_gloo = _run(jobs, tmp_path / "gloo", "gloo", [f"{part}/{PARTS}"])
    passed = [name for name, outcome in on_gloo.items() if outcome == "passed"]
    assert len(passed) > 15, on_gloo
    assert {name for name in EXCEPTIONS if name in on_gloo} <= set(passed), "no exception any more"
    on_ddl = _run(jobs, tmp_path / "ddl", "ddl", [name for name in passed if name not in EXCEPTIONS])
    assert {name: outcome for name, outcome in on_ddl.items() if outcome != "passed"} == {}
