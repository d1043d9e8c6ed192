"""A rank ends, or stops, at each step of a call, or of the making of a group: soon an error names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rank_processes import (
    ALLOW_ROOT,
    QUICK,
    compiled_program,
    exits_together,
    finish,
    own_environment,
    own_segments,
    segments_left,
    start,
)


@pytest.fixture(scope="session")
def program() -> Path:
    """The C++ program of which one rank ends at a step."""
    return compiled_program("endings_ranks")


def _run(words: list[str], hosts: str) -> tuple[str, str]:
    env = {**own_environment(), **ALLOW_ROOT, **QUICK, "DDL_OPTIONS": "-timeout 2 -late 2 -patience 8"}
    if hosts != "3":
        env["DDL_EMULATE_HOSTS"] = hosts
    return finish(start(words, env), 60)


@pytest.mark.long
@pytest.mark.parametrize("hosts", ["3", "2,1", "1,1,1"])
@pytest.mark.parametrize(
    ("what", "how"),
    [
        ("group", "stop"),
        ("group", "kill"),
        ("small", "stop"),
        ("large", "stop"),
        ("small", "kill"),
        ("large", "exit"),
    ],
)
def test_every_step(mpirun: Any, program: Path, what: str, how: str, hosts: str) -> None:
    """The first and the last rank in turn, at every step until there is none left."""
    # Within a host a small call looks at the clock at its begin and its end, and calls no MPI.
    fewest = 2 if what == "small" and hosts == "3" else 5
    before = own_segments()
    for step in range(1, 100):
        victim = 2 * (step % 2)
        words = [str(mpirun.mpirun), "-n", "3", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
        out, err = _run(
            [*words, *exits_together(mpirun.python), str(program), what, how, str(victim), str(step)], hosts
        )
        if "over" in out:
            break
        told = [line.split(maxsplit=3) for line in out.splitlines() if line.startswith("error ")]
        errors = {rank: text for _, rank, _, text in told}
        where = f"step {step} of {what} on {hosts}:\n{out}\n{err}"
        assert {"0", "1", "2"} - {str(victim)} <= set(errors), where
        for rank in {"0", "1", "2"} - {str(victim)}:
            # In a group made backwards.
            names = (f"rank {victim} ", f"rank {2 - victim} (") if what == "group" else (f"rank {victim} (",)
            assert any(name in errors[rank] for name in names), where
        assert "written" not in out, where
        assert not segments_left(before), where
    assert step - 1 >= fewest, "there were steps"


@pytest.mark.parametrize("hosts", ["3", "2,1", "1,1,1"])
def test_a_rank_that_stops_before_the_end(mpirun: Any, program: Path, hosts: str) -> None:
    """ddl_finalize waits for longer than -timeout only for ranks that answer."""
    words = [str(mpirun.mpirun), "-n", "3", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    out, err = _run([*words, str(program), "end", "stop", "2", "1"], hosts)
    told = {line.split()[1]: line for line in out.splitlines() if line.startswith("error ")}
    assert {"0", "1"} <= set(told), out + err
    for rank in ("0", "1"):
        assert "Timed out after 2 s: rank 2 (host" in told[rank], out + err
        assert "does not answer; in finalize" in told[rank], out + err
