"""What a site expects: figures of a recorded run or of a reference file, and what falls short of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ValidateError
from .history import Regression
from .model import (
    EFFECT,
    HIGHER,
    CheckResult,
    Expectation,
    Figure,
    Finding,
    Key,
    Kind,
    Status,
    hosts_in,
    key_of,
    status_of,
)

_KINDS = (
    ("host.memory", Kind.SLOW_MEMORY),
    ("sustained.memory", Kind.SLOW_MEMORY),
    ("sustained.exchange", Kind.SLOW_TIER),
    ("sustained.", Kind.SLOW_HOST),
    ("host.", Kind.SLOW_HOST),
    ("rack.", Kind.SLOW_TIER),
    ("link.", Kind.SLOW_LINK),
    ("rail.", Kind.SLOW_LINK),
    ("gpu.", Kind.GPU),
)
ANYWHERE = "*"
_REFERENCES = Path(__file__).parent / "references"
_CAUSES = (Kind.WRONG_RESULT, Kind.GPU, Kind.SLOW_HOST, Kind.SLOW_MEMORY, Kind.SLOW_LINK, Kind.SLOW_TIER)
_JUDGED = {"prediction": "the measured links let one expect", "baseline": "the baseline says"}
_JUDGED |= {"reference": "the reference says"}


@dataclass(frozen=True)
class Reference:
    """What a file expects of a figure. tolerance: None where the file leaves it to the command line."""

    value: float
    source: str
    tolerance: float | None


def kind_of(name: str) -> Kind:
    """What is at fault where the figure of this name is low."""
    return next((kind for begin, kind in _KINDS if name.startswith(begin)), Kind.SLOW_TRAINING)


def read_reference(path: Path) -> dict[Key, Reference]:
    """Figures of a file: a result of `wmlce validate` or what `--save-baseline` wrote (a baseline), or a
    reference: an object with `figures`, each with `name`, `value`, and where needed `where`, `scale` and
    `tolerance`. One without `where` or `scale` is of any. ValidateError where it is none of these.
    """
    try:
        data = json.loads(path.read_text())
        if "checks" in data:
            figures = [figure for check in data["checks"] for figure in check["figures"]]
            source = "baseline"
        else:
            figures = data["figures"]
            source = "baseline" if data.get("kind") == "cluster-baseline" else "reference"
        return {
            key_of(str(entry["name"]), str(entry.get("where", ANYWHERE)), _scale(entry)): Reference(
                _number(entry["value"]), source, _tolerance(entry)
            )
            for entry in figures
        }
    except OSError as error:
        raise ValidateError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValidateError(
            f"{path}: {type(error).__name__} {error}: neither a result of `wmlce validate` nor an object "
            "with `figures`, each with name and value"
        ) from None


def packaged_references() -> dict[str, str]:
    """Titles of the references that come with this release, by name."""
    return {
        file.stem: str(json.loads(file.read_text())["title"]) for file in sorted(_REFERENCES.glob("*.json"))
    }


def reference_file(text: str) -> Path:
    """The file of this name, or the packaged reference. ValidateError where it is neither."""
    if "/" in text or Path(text).exists():
        return Path(text)
    if text not in packaged_references():
        names = ", ".join(packaged_references())
        raise ValidateError(f"--reference {text}: neither a file nor one of: {names}")
    return _REFERENCES / f"{text}.json"


def _scale(entry: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): int(number) for name, number in (entry.get("scale") or {}).items()}


def _number(text: Any) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} is not a valid value of a figure")
    return value


def _tolerance(entry: Mapping[str, Any]) -> float | None:
    value = entry.get("tolerance")
    if value is None:
        return None
    if not 0 < float(value) < 1:
        raise ValueError(f"the tolerance {value!r} of {entry['name']} is not between 0 and 1")
    return float(value)


def apply(result: CheckResult, references: Mapping[Key, Reference], tolerance: float) -> None:
    """Give every figure that `references` holds this expectation in place of what it had."""
    for number, figure in enumerate(result.figures):
        keys = [
            key_of(figure.name, where, scale)
            for where in (figure.where, ANYWHERE)
            for scale in (figure.scale, {})
        ]
        reference = next((references[key] for key in keys if key in references), None)
        if reference is not None:
            allowed = tolerance if reference.tolerance is None else reference.tolerance
            expected = Expectation(reference.value, reference.source, allowed)
            result.figures[number] = dataclasses.replace(figure, expected=expected)


def judge(result: CheckResult, before: Sequence[CheckResult] = ()) -> None:
    """A finding for each figure that is too low for a prediction or for what the site expects. Comparisons
    of hosts with each other are the checks' own. What a host has a finding for already, here or `before`, is
    not reported again. Where several hosts were measured and all fall short, none is drained: what they
    share is at fault, or the expectation.
    """
    for figure in result.figures:
        source = figure.expected.source if figure.expected else ""
        if figure.low and source in _JUDGED:
            assert figure.expected is not None
            share = f" ({figure.ratio:.0%})" if figure.ratio is not None else ""
            _add(
                result,
                before,
                figure,
                f"{_words(figure)}; {_JUDGED[source]} {figure.expected.value:.4g}{share}",
                drains=not _all_low(result, figure.name),
            )


def _all_low(result: CheckResult, name: str) -> bool:
    figures = [figure for figure in result.figures if figure.name == name and figure.expected]
    return len({figure.where for figure in figures}) > 1 and all(figure.low for figure in figures)


def judge_regressions(results: Sequence[CheckResult], regressions: Iterable[Regression]) -> None:
    """A finding for each figure that has become worse than in the runs before."""
    for regression in regressions:
        for result in results:
            if any(figure is regression.figure for figure in result.figures):
                _add(result, results, regression.figure, regression.text)


def _add(
    result: CheckResult, others: Iterable[CheckResult], figure: Figure, text: str, drains: bool = True
) -> None:
    kind = kind_of(figure.name)
    members = hosts_in(figure.where)
    for finding in [finding for earlier in (*others, result) for finding in earlier.findings]:
        same = (finding.kind, finding.where) == (kind, figure.where) and not finding.warning
        if same or set(members) & set(finding.hosts):
            return
    remedy = f"measure again: {figure.command}" if figure.command else "measure again when the hosts are idle"
    hosts = members if len(members) == 1 and drains else ()
    result.findings.append(Finding(kind, figure.where, text, remedy, hosts, figure.name))
    result.status = Status.FAILED


def leave_out(result: CheckResult, figures: Sequence[str]) -> None:
    """Drop findings about these figures and facts, and say so."""
    for name in figures:
        dropped = [finding.text for finding in result.findings if finding.figure == name]
        measured = any(figure.name == name for figure in result.figures)
        if dropped or (measured and name not in result.not_judged):
            result.not_judged[name] = "; ".join(["left out by --skip-figure", *dropped])
    result.findings = [finding for finding in result.findings if finding.figure not in figures]
    if result.status is Status.FAILED:
        result.status = status_of(result.findings)


def _words(figure: Figure) -> str:
    more = "" if figure.better == HIGHER else " (less is better)"
    return f"{figure.name} of {figure.where} is {figure.value:.4g} {figure.unit}{more}"


def leave_out_effects(results: Iterable[CheckResult]) -> None:
    """Slow training is no finding of its own where a host, a link or a tier is found slow: it is the effect.
    Its figures stay.
    """
    listed = list(results)
    if not any(
        finding.kind in _CAUSES and not finding.warning for result in listed for finding in result.findings
    ):
        return
    for result in listed:
        effects = [finding.text for finding in result.findings if finding.kind is Kind.SLOW_TRAINING]
        if effects:
            result.findings = [
                finding for finding in result.findings if finding.kind is not Kind.SLOW_TRAINING
            ]
            result.reason = "the effect of what was found elsewhere: " + "; ".join(effects)
            result.not_judged |= dict.fromkeys(effects, EFFECT)
