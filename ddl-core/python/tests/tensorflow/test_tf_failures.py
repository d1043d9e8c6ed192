"""Ranks that disagree: an error on every rank that names ranks and variables; no wrong sum, no hang."""

from __future__ import annotations

import json

import pytest
from rank_launcher import Launcher

#: Found before anything is added up, so that one job can make all of these mistakes.
BEFORE = {
    "a_gradient_is_missing": [
        "tail:0 (a gradient on rank 0, no gradient on rank 1)",
        "other:0 (no gradient on rank 0, a gradient on rank 1)",
    ],
    "another_variable_is_trained": [
        "left:0 (a gradient on rank 0, not trained on rank 1)",
        "right:0 (not trained on rank 0, a gradient on rank 1)",
    ],
    "the_variables_are_in_another_order": ["left:0 on rank 0 is where right:0 is on rank 1"],
    "a_gradient_is_sparse": ["table:0 (a gradient on rank 0, a sparse gradient on rank 1)"],
    "a_graph_trains_other_variables": [
        "attention:0 (a gradient on rank 0, not trained on rank 1)",
        "alignment:0 (not trained on rank 0, a gradient on rank 1)",
    ],
}
#: Found by the collective itself, after which DDL is of no more use to the job: a job each.
WITHIN = {
    "a_rank_has_more_variables": ["rank 0", "rank 1", "extra:0", "no_broadcast"],
}
ALSO_WITHIN = {
    "a_later_gradient_is_missing": ["rank 0", "rank 1", "none for tail"],
    "a_graph_is_different": ["rank 0", "rank 1", "encoder:0", "decoder:0"],
    "an_order_is_different": ["rank 0", "rank 1", "'first'", "'second'"],
}
MISTAKES = [
    BEFORE,
    *({case: words} for case, words in WITHIN.items()),
    *(pytest.param({case: words}, marks=pytest.mark.long) for case, words in ALSO_WITHIN.items()),
]


@pytest.mark.parametrize("cases", MISTAKES, ids=" ".join)
def test_error_names_what_differs(launcher: Launcher, cases: dict[str, list[str]]) -> None:
    """TensorFlow's InvalidArgumentError with DDL's text, on both ranks, and the job ends."""
    run = launcher.ranks(2, "failures", "OUT", *cases)
    for rank in range(2):
        report = run.folder / f"rank{rank}.json"
        assert report.exists(), f"rank {rank} was stopped before it could report:\n{run.output}"
        outcomes = json.loads(report.read_text())
        for case, words in cases.items():
            kind, text = outcomes[case]
            assert kind == "InvalidArgumentError", (case, text)
            assert "[ERROR DDL-1-7]" in text, text
            for word in words:
                assert word in text, text
