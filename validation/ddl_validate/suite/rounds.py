"""A check that is made again and again: what all its rounds say together."""

from __future__ import annotations

import statistics
from dataclasses import replace

from .model import CheckResult, Figure, Finding, Key, Status

_WORST_FIRST = (Status.FAILED, Status.BROKEN, Status.PASSED, Status.SKIPPED)
_ROUNDS, _VALUES = "times_made", "values_of_times_made"  # facts: no check has such of its own


def number_of(result: CheckResult) -> int:
    """How often the check was made."""
    return int(result.facts.get(_ROUNDS, 1))


def merged(earlier: CheckResult, now: CheckResult) -> CheckResult:
    """One result of both. A fault that showed once stays a finding; a figure is the median of its rounds.

    The values of all rounds are kept in the facts, in the order of the figures.
    """
    number = number_of(earlier) + 1
    earlier_keys = {finding_key(finding) for finding in earlier.findings}
    fresh = [
        replace(finding, text=f"{finding.text} (round {number})")
        for finding in now.findings
        if finding_key(finding) not in earlier_keys
    ]
    values = _values(earlier)
    figures = {figure.key: figure for figure in earlier.figures}
    for figure in now.figures:
        values.setdefault(figure.key, []).append(figure.value)
        figures[figure.key] = _of_rounds(figure, values[figure.key])
    return replace(
        now,
        status=min((earlier.status, now.status), key=_WORST_FIRST.index),
        seconds=earlier.seconds + now.seconds,
        reason=now.reason or earlier.reason,
        figures=list(figures.values()),
        findings=[*earlier.findings, *fresh],
        facts={
            **earlier.facts,
            **now.facts,
            _ROUNDS: number,
            _VALUES: [values.get(key, []) for key in figures],
        },
        not_judged={**earlier.not_judged, **now.not_judged},
        commands=list(dict.fromkeys([*earlier.commands, *now.commands])),
        logs=list(dict.fromkeys([*earlier.logs, *now.logs])),
    )


def finding_key(finding: Finding) -> tuple[str, str, str]:
    return finding.kind, finding.where, finding.figure


def _of_rounds(figure: Figure, values: list[float]) -> Figure:
    return replace(figure, value=statistics.median(values))


def _values(result: CheckResult) -> dict[Key, list[float]]:
    saved = result.facts.get(_VALUES) or [[figure.value] for figure in result.figures]
    return {figure.key: list(values) for figure, values in zip(result.figures, saved, strict=True)}
