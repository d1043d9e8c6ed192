"""Reduce, reduce-scatter, all-gather and all-to-all, against numpy in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs/collectives.py"
#: Ranks of each host; a slash separates racks.
LAYOUTS = ["1", "2", "4", "5", "1,1", "2,1", "3,2", "1,1,1,1", "2,1/1,2"]
#: Those in which all groups are alike: reduce-scatter and all-gather then go by all tiers at once.
LAYOUTS += ["2,2,2", "2,2/2,2", "1,1/1,1/1,1", "1,1,1,1,1,1,1"]


def ranks_of(hosts: str) -> int:
    return sum(int(n) for n in hosts.replace("/", ",").split(","))


@pytest.mark.parametrize("hosts", LAYOUTS)
def test_values(mpirun: Any, hosts: str) -> None:
    """Every root, all types, odd sizes and sizes of several chunks."""
    run = mpirun(ranks_of(hosts), PROGRAM, hosts=hosts if len(hosts) > 1 else None)
    assert run.status == 0, run.output
    counts = {int(n) for n in run.lines("cases ")}
    assert len(run.lines("cases ")) == ranks_of(hosts) and len(counts) == 1, run.output
    assert counts.pop() >= 100


def test_an_array_that_cannot_be_divided(mpirun: Any) -> None:
    program = """
import ddl, numpy as np
for call in (ddl.reduce_scatter, ddl.all_to_all):
    try:
        call(np.ones((3, 2)))
    except ValueError as error:
        print("said", error)
"""
    run = mpirun(2, program)
    assert run.status == 0, run.output
    said = run.lines("said ")
    assert len(said) == 4
    assert all("shape (3, 2) cannot be divided among 2 ranks" in line for line in said)


@pytest.mark.parametrize("hosts", ["2", "1,1"])
def test_ranks_that_pass_different_roots(mpirun: Any, hosts: str) -> None:
    program = """
import ddl, numpy as np
try:
    ddl.reduce(np.ones(3), root=ddl.rank())
except ddl.DDLError as error:
    print("said", error)
"""
    run = mpirun(2, program, hosts=hosts)
    said = run.lines("said ")
    assert len(said) == 2, run.output
    assert all("[ERROR DDL-1-7]" in line and "[differs in root]" in line for line in said)
    assert all("root 0" in line and "root 1" in line for line in said)
