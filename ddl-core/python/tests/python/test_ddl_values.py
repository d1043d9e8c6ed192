"""Results of all collectives on one to five ranks and on even and uneven hosts, against numpy in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs/values.py"
LAYOUTS = ["1", "2", "3", "4", "5", "1,1", "2,1", "1,3", "3,2", "2,2,1", "1,1,1,1"]


@pytest.mark.parametrize("hosts", LAYOUTS)
def test_values(mpirun: Any, hosts: str) -> None:
    """All types, reductions and sizes; `hosts` gives the ranks of each host."""
    sizes = [int(n) for n in hosts.split(",")]
    run = mpirun(sum(sizes), PROGRAM, hosts=hosts if len(sizes) > 1 else None)
    assert run.status == 0, run.output
    counts = {int(n) for n in run.lines("cases ")}
    assert len(counts) == 1 and len(run.lines("cases ")) == sum(sizes), run.output
    assert counts.pop() >= 6 * 5 * 7 + 12 + 5 * 12 + 6 * 4 * sum(sizes)


@pytest.mark.parametrize(
    "mode", ["p:2x2", "p:1x2x2", "r:4", "r:1x4", "c:2x1x2", "c:1x4", "m:2x2", "b:2x2", "p:1x1x1x4"]
)
def test_values_with_tiers(mpirun: Any, mode: str) -> None:
    """Hosts, racks and aisles as -mode describes them."""
    run = mpirun(4, PROGRAM, env={"DDL_OPTIONS": f"-mode {mode}"})
    assert run.status == 0, run.output
    assert len(run.lines("cases ")) == 4, run.output


def test_command_of_the_readme(mpirun: Any) -> None:
    """The smallest program there is."""
    program = (
        "import ddl, numpy as np; x = np.full(3, ddl.rank() + 1.0, 'f'); print('result', ddl.allreduce(x))"
    )
    run = mpirun(2, program)
    assert run.status == 0, run.output
    assert run.lines("result ") == ["[3. 3. 3.]"] * 2
