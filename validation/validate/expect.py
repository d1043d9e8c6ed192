"""What a site expects: figures of a recorded run or of a reference file, and what falls short of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import ValidateError
from .model import CheckResult, Expectation, Figure, Finding, Key, Kind, Status, key_of

_KINDS = (
    ("host.memory", Kind.SLOW_MEMORY),
    ("host.", Kind.SLOW_HOST),
    ("rack.", Kind.SLOW_TIER),
    ("link.", Kind.SLOW_LINK),
    ("gpu.", Kind.GPU),
)


def kind_of(name: str) -> Kind:
    """What is at fault where the figure of this name is low."""
    return next((kind for begin, kind in _KINDS if name.startswith(begin)), Kind.SLOW_TRAINING)


def read_reference(path: Path) -> tuple[dict[Key, float], str]:
    """Figures of a file, and what to call them: a result of `wmlce validate` (a baseline), or a reference: an
    object with `figures`, each with `name`, `where`, `value` and where needed `scale`. ValidateError where it
    is neither.
    """
    try:
        told = json.loads(path.read_text())
        if "checks" in told:
            figures = [figure for check in told["checks"] for figure in check["figures"]]
            source = "baseline"
        else:
            figures, source = told["figures"], "reference"
        return {
            key_of(str(one["name"]), str(one["where"]), one.get("scale") or {}): float(one["value"])
            for one in figures
        }, source
    except OSError as error:
        raise ValidateError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValidateError(
            f"{path}: {type(error).__name__} {error}: neither a result of `wmlce validate` nor an object "
            "with `figures`, each with name, where and value"
        ) from None


def apply(
    results: Iterable[CheckResult], expected: Mapping[Key, float], source: str, tolerance: float
) -> None:
    """Give every figure that `expected` knows this expectation in place of a prediction, and a finding if it
    is too low for it.
    """
    for result in results:
        replaced = []
        for number, figure in enumerate(result.figures):
            value = expected.get(figure.key)
            if value is not None:
                figure = dataclasses.replace(figure, expected=Expectation(value, source, tolerance))
                result.figures[number] = figure
                replaced.append(figure)
        already = {(finding.kind, finding.where) for finding in result.findings}
        for figure in replaced:
            kind = kind_of(figure.name)
            if figure.low and (kind, figure.where) not in already:
                result.findings.append(_finding(kind, figure))
                result.status = Status.FAILED


def _finding(kind: Kind, figure: Figure) -> Finding:
    assert figure.expected is not None and figure.ratio is not None
    host = figure.where.removeprefix("host ") if figure.where.startswith("host ") else ""
    return Finding(
        kind,
        figure.where,
        f"{figure.name} of {figure.where} is {figure.value:.4g} {figure.unit}; the {figure.expected.source} "
        f"says {figure.expected.value:.4g} ({figure.ratio:.0%})",
        f"measure again: {figure.command}" if figure.command else "measure again when the hosts are idle",
        (host,) if host else (),
    )


def leave_out_effects(results: Iterable[CheckResult]) -> None:
    """Slow training is no finding of its own where a host, a link or a tier is found slow: it is the effect.
    Its figures stay.
    """
    listed = list(results)
    causes = {
        finding.kind
        for result in listed
        for finding in result.findings
        if finding.kind
        in (Kind.WRONG_RESULT, Kind.GPU, Kind.SLOW_HOST, Kind.SLOW_MEMORY, Kind.SLOW_LINK, Kind.SLOW_TIER)
    }
    if not causes:
        return
    for result in listed:
        effects = [finding for finding in result.findings if finding.kind is Kind.SLOW_TRAINING]
        if effects:
            result.findings = [one for one in result.findings if one.kind is not Kind.SLOW_TRAINING]
            result.reason = "; ".join(finding.text for finding in effects)
            words: dict[str, Any] = {"effects": [finding.text for finding in effects]}
            result.facts |= words
