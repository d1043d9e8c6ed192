"""What a validation finds: figures with what was expected of them,
findings that name a culprit, results of checks.

Pure data, written as JSON by `document.py`. Rates are in bytes a second, times in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

HIGHER, LOWER = "higher", "lower"
EFFECT = "the effect of what is found elsewhere"


class Severity(StrEnum):
    """What a finding asks for, the least first."""

    WARN = "warn"  # a look at it: it makes no run fail
    FAIL = "fail"  # a repair, and nobody can name a host that is to be drained for it
    DRAIN = "drain"  # no job on the hosts that it names until they are repaired


class Kind(StrEnum):
    """What is at fault. The order is that of severity; each has an exit code (EXIT_CODES) and a section in
    docs/cluster/validate.md of the same name.
    """

    WRONG_RESULT = "wrong-result"  # a host computes, or passes on, something else than the others
    ENVIRONMENT = "environment"  # software or settings: missing, or not the same on all hosts
    GPU = "gpu"
    SLOW_HOST = "slow-host"  # its cores
    SLOW_MEMORY = "slow-memory"
    SLOW_LINK = "slow-link"  # a host's network link, or the path between two hosts
    SLOW_TIER = "slow-tier"  # what several hosts share: a rack's uplink
    SLOW_TRAINING = "slow-training"  # training is slower than expected, and none of the above says why
    NOT_CHECKED = "not-checked"  # a check broke off: its program failed or exceeded its time


EXIT_CODES = {kind: 10 + number for number, kind in enumerate(Kind)}
"""The most severe of several findings decides. 0: nothing found; 2: the command line is wrong; 3: there
is nothing to validate on (no hosts, no environment)."""


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"  # cannot be made here; the reason says why
    BROKEN = "broken"  # it was begun, and gave no result


@dataclass(frozen=True)
class Expectation:
    """value: in the figure's unit. source: where it is from: `prediction` (measured links and the cost
    model), `baseline` (the site's recorded run), `reference` (a file), `peers` (the other hosts' median),
    `hardware` (what its port, clock or memory channels carry at best), `start` (itself, in its first minute),
    `ideal` (drawn, never judged). tolerance: the share of `value` that may be missing, 0.1 for 10 %.
    """

    value: float
    source: str
    tolerance: float


_HOSTS = re.compile(r"hosts? (\S+)(?: and (\S+))?")

#: Differences of such figures up to this, in their unit, are noise of the measurement, and are never judged.
NOISE = {"host.jitter": 0.02, "link.latency": 5e-6}

Key = tuple[str, str, tuple[tuple[str, int], ...]]


def key_of(name: str, where: str, scale: Mapping[str, int]) -> Key:
    """What makes figures of two runs the same figure."""
    return name, where, tuple(sorted(scale.items()))


def hosts_in(where: str) -> tuple[str, ...]:
    """The hosts that a figure's place names: one, the two of a path, or none."""
    match = _HOSTS.fullmatch(where)
    return tuple(filter(None, match.groups())) if match else ()


@dataclass(frozen=True)
class Figure:
    """One measured number.

    name:    what was measured, the same in every run, such as `link.bandwidth`
    where:   what it belongs to: `host h3`, `hosts h2 and h5`, `rack r1`, `2 hosts`, `cluster`
    unit:    `B/s`, `images/s`, `s`, `1` …
    better:  HIGHER or LOWER
    command: what a person types to measure it again
    scale:   number of hosts, of ranks: for curves
    """

    name: str
    where: str
    value: float
    unit: str
    better: str = HIGHER
    expected: Expectation | None = None
    command: str = ""
    scale: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return key_of(self.name, self.where, self.scale)

    @property
    def ratio(self) -> float | None:
        """Measured over expected, above 1 where it is better than expected; None without an expectation."""
        if self.expected is None or self.expected.value <= 0 or self.value <= 0:
            return None
        ratio = self.value / self.expected.value
        return ratio if self.better == HIGHER else 1 / ratio

    @property
    def low(self) -> bool:
        """Is it worse than expected by more than the tolerance?"""
        if self.expected is None or self.expected.source == "ideal":
            return False
        if abs(self.value - self.expected.value) <= NOISE.get(self.name, 0.0):
            return False
        if self.value <= 0:
            return self.better == HIGHER
        return self.ratio is not None and self.ratio < 1 - self.expected.tolerance


@dataclass(frozen=True)
class Finding:
    """A culprit.

    where:  what is at fault, in the words of Figure.where: `host h3`, `hosts h2 and h5` for the path between
            two, `rack 1`
    hosts:  the hosts to drain for it: those that are surely at fault; empty for a path or a tier
    text:   one sentence with the measured and the expected figure, for a person
    remedy: what to look at first
    figure: name of the figure, or of the fact, that is judged: --skip-figure takes it
    warning: is it no more than that?
    """

    kind: Kind
    where: str
    text: str
    remedy: str
    hosts: tuple[str, ...] = ()
    figure: str = ""
    warning: bool = False

    @property
    def severity(self) -> Severity:
        if self.warning:
            return Severity.WARN
        return Severity.DRAIN if self.hosts else Severity.FAIL


def warning(kind: Kind, where: str, text: str, remedy: str, figure: str) -> Finding:
    """A finding that makes no run fail, and drains nothing."""
    return Finding(kind, where, text, remedy, figure=figure, warning=True)


@dataclass
class CheckResult:
    """What one check gave. reason: why it was skipped or broke off. not_judged: by the name of a figure or
    fact, why nothing is said of it.
    """

    name: str
    title: str
    status: Status
    seconds: float = 0.0
    reason: str = ""
    figures: list[Figure] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    not_judged: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        data = asdict(self)
        for figure, original in zip(data["figures"], self.figures, strict=True):
            figure["ratio"], figure["low"] = original.ratio, original.low
        for entry, finding in zip(data["findings"], self.findings, strict=True):
            entry["severity"] = finding.severity.value
        return data


def status_of(findings: Iterable[Finding]) -> Status:
    """The status of a check that came to its end."""
    return Status.PASSED if all(finding.warning for finding in findings) else Status.FAILED


def exit_code(results: list[CheckResult]) -> int:
    """The code of the most severe finding; 0 where there is none but warnings."""
    kinds = {finding.kind for result in results for finding in result.findings if not finding.warning}
    return next((EXIT_CODES[kind] for kind in Kind if kind in kinds), 0)


def figure_from_json(data: dict[str, Any]) -> Figure:
    fields = {name: data[name] for name in data if name not in ("ratio", "low", "expected")}
    expected = data.get("expected")
    return Figure(**fields, expected=Expectation(**expected) if expected else None)


def result_from_json(data: dict[str, Any]) -> CheckResult:
    """The inverse of CheckResult.as_json; ValueError, KeyError or TypeError where it is no such thing."""
    findings = [
        Finding(**{**fields, "kind": Kind(fields["kind"]), "hosts": tuple(fields["hosts"])})
        for entry in data["findings"]
        for fields in [{name: value for name, value in entry.items() if name != "severity"}]
    ]
    figures = [figure_from_json(entry) for entry in data["figures"]]
    return CheckResult(**{**data, "status": Status(data["status"]), "figures": figures, "findings": findings})
