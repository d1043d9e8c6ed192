"""Ranks that make different calls: an error on every rank that names both sides; no hang, no wrong sum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs/misbehave.py"

#: Case -> what differs, what the culprit did, what the others did.
CASES = {
    "count": ("element count", "allreduce of 11 float32", "allreduce of 10 float32"),
    "type": ("element type", "10 float64", "10 float32"),
    "op": ("op", "op max", "op sum"),
    "name": ("name", "name 'bias'", "name 'weights'"),
    "kind": ("kind of call", "barrier", "allreduce of 10 float32"),
    "root": ("root", "root 1", "root 0"),
    "buffers": ("sizes of the buffers", "in 2 buffers", "in 2 buffers"),
    "number": ("number of buffers", "in 2 buffers", "10 float32 elements (op avg)"),
    "big": ("element count", "3000001", "3000000"),
    "fewer": ("kind of call", "finalize", "allreduce of 10 float32"),
}


#: Ranks of the hosts, the culprit, and the cases worth trying there.
LAYOUTS = [
    ("3", 1, list(CASES)),
    ("2,1", 2, list(CASES)),  # found between the hosts
    ("2,2", 1, ["count", "kind"]),  # found within a host, the other must be told
]


@pytest.mark.parametrize(
    ("hosts", "culprit", "case"), [(hosts, who, case) for hosts, who, cases in LAYOUTS for case in cases]
)
def test_mismatch(mpirun: Any, hosts: str, culprit: int, case: str) -> None:
    """The same text everywhere, with the rank, its host, both calls and what differs between them."""
    sizes = [int(n) for n in hosts.split(",")]
    run = mpirun(sum(sizes), PROGRAM, case, str(culprit), hosts=hosts, timeout=60)
    ranks = {str(rank) for rank in range(sum(sizes))}
    if case == "fewer":
        # The culprit's error comes from the end of the program, where it is printed.
        assert f"rank {culprit}" in run.stderr
        ranks.remove(str(culprit))
    errors = run.lines("error ")
    assert {line.split()[0] for line in errors} == ranks, run.output
    texts = {line.split(maxsplit=3)[3] for line in errors}
    assert len(texts) == 1, texts
    text = texts.pop()
    differs, culprits_call, others_call = CASES[case]
    host = f"emulated{0 if culprit < sizes[0] else 1}"
    assert text.startswith("[ERROR DDL-1-7] "), text
    side, _, others = text.partition("while ")
    assert f"rank {culprit} (host {host}) called" in side, text
    assert culprits_call in side and others_call in others, text
    assert f"[differs in {differs}]" in text
    assert all(float(line.split()[1]) < 10 for line in errors), "it waited for the time limit"
    assert {line for line in run.lines("again ")} == {f"{rank} 7 True" for rank in ranks}, run.output
    assert "no error" not in run.stdout
