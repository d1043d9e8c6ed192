"""Ranks that disagree: an error on every rank that names ranks and variables; no wrong sum, no hang."""

from __future__ import annotations

import json

import pytest
from rank_launcher import Launcher


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("a_gradient_is_missing", ["rank 0", "rank 1", "none for tail", "none for other"]),
        ("a_graph_is_different", ["rank 0", "rank 1", "encoder:0", "decoder:0"]),
        ("an_order_is_different", ["rank 0", "rank 1", "'first'", "'second'"]),
        ("a_rank_has_more_variables", ["rank 0", "rank 1", "extra:0", "no_broadcast"]),
    ],
)
def test_error_names_what_differs(launcher: Launcher, case: str, words: list[str]) -> None:
    """TensorFlow's InvalidArgumentError with DDL's text, on both ranks, and the job ends."""
    run = launcher.ranks(2, "failures", case, "OUT")
    for rank in range(2):
        report = run.folder / f"rank{rank}.json"
        assert report.exists(), f"rank {rank} was stopped before it could report:\n{run.output}"
        kind, text = json.loads(report.read_text())
        assert kind == "InvalidArgumentError", text
        assert "[ERROR DDL-1-7]" in text, text
        for word in words:
            assert word in text, text
