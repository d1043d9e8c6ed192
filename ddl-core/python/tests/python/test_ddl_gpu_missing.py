"""A rank that is lost within a call on GPUs: the others are not left waiting, in NCCL or for its part. On
stand-ins."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rank_processes import ROOT

PROGRAM = Path(__file__).parent / "programs/lose_gpu_rank.py"
STAND_INS = Path(os.environ.get("DDL_TEST_STAND_INS") or ROOT / "build/ddl-core/libddl/tests/cuda/stand-ins")


@pytest.fixture
def variables() -> Iterator[dict[str, str]]:
    if not (STAND_INS / "libnccl.so.2").exists():
        pytest.skip(f"no stand-ins for CUDA in {STAND_INS}: ci/test builds them")
    # DDL looks in its environment first, and one for GPUs has NCCL itself
    nccl = {"LD_PRELOAD": str(STAND_INS / "libnccl.so.2")}
    yield nccl | {"LD_LIBRARY_PATH": str(STAND_INS), "STAND_IN_DEVICES": "3", "STAND_IN_PATIENCE_S": "30"}


NCCL = {"DDL_OPTIONS": "-mode n -timeout 2"}
IPC = {"DDL_OPTIONS": "-mode b -timeout 2", "DDL_NCCL_LIBRARY": "none"}


@pytest.mark.parametrize(
    ("options", "case", "hosts"),
    [
        (NCCL, "exit", "3"),
        (NCCL, "stop", "3"),
        (NCCL, "exit", "2,1"),
        (NCCL, "stop", "2,1"),
        (IPC, "exit", "3"),
        (IPC, "stop", "3"),
        (IPC, "stop", "1,2"),
    ],
)
def test_rank_lost_within_a_call(
    mpirun: Any, variables: dict[str, str], options: dict[str, str], case: str, hosts: str
) -> None:
    run = mpirun(3, PROGRAM, case, hosts=hosts, env=variables | options, timeout=60)
    for line in run.lines("pid "):
        try:
            os.kill(int(line), signal.SIGKILL)
        except ProcessLookupError:
            pass
    assert run.status != 0, run.output
    errors = {line.split()[0]: line.split(maxsplit=3) for line in run.lines("error ")}
    # from another host the launcher's signal may come first
    assert errors or (case == "exit" and hosts != "3"), run.output
    assert set(errors) <= {"0", "1"}, run.output
    for _, seconds, code, text in errors.values():
        assert "rank 2 (host " in text, text
        assert int(code) in (8, 9) and float(seconds) < 20, text
