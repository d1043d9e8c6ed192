"""Which host falls short of the others or differs from them, and what is the mere effect of another fault."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .kinds import FEWEST, by_kind
from .model import CheckResult, Expectation, Figure, Finding, Kind

_CAUSES = (Kind.WRONG_RESULT, Kind.SLOW_HOST, Kind.SLOW_MEMORY)


_TO_SIGMA = 1.4826  # a normal distribution's standard deviation over its median absolute deviation
_SCATTERING = 5  # hosts: the scatter of fewer says little
_BY_CHANCE = 0.001
_ONE_SIDED = 2.0  # noise only slows down: its tail is longer than the deviation from the median tells
_FEW = 6  # hosts of which the deviation is known to a factor of two
_MOST_TOLERANCE = 0.5


@dataclass(frozen=True)
class Shortfall:
    """A host's figure, and the median of the other hosts' of its kind.

    hosts: what to drain for it: nothing where so few are compared that nobody can say who is right
    """

    host: str
    value: float
    expected: float
    hosts: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        return self.value / self.expected


def expected_of_peers(
    values: Mapping[str, float], tolerance: float, kinds: Mapping[str, str] | None = None
) -> dict[str, Expectation]:
    """For each host, the median of the values of the others of its kind; nothing for one that is alone.

    More than `tolerance` may be missing where the others scatter: so much that of all hosts together one in a
    thousand runs has a finding by chance, but never more than half. kinds: of each host; None: all are of one
    kind.
    """
    certain = statistics.NormalDist().inv_cdf(1 - _BY_CHANCE / max(len(values), 1))
    expectations = {}
    for group in by_kind(values, kinds or {}):
        ranked = sorted(values[host] for host in group)
        middle = (len(ranked) - 1) // 2
        scatter = 0.0
        if len(ranked) > _SCATTERING:
            scatter = _ONE_SIDED * (1 + _FEW / len(ranked)) * scatter_of(ranked)
        for host in group if len(group) > 1 else ():
            # without its own value
            expected = ranked[middle + 1 if values[host] <= ranked[middle] else middle]
            allowed = tolerance
            if expected > 0:
                allowed = max(tolerance, min(_MOST_TOLERANCE, certain * scatter / expected))
            expectations[host] = Expectation(expected, "peers", allowed)
    return expectations


def scatter_of(values: Sequence[float]) -> float:
    """The standard deviation, by the median absolute deviation: a single odd value changes it little."""
    median = statistics.median(values)
    return _TO_SIGMA * statistics.median(abs(value - median) for value in values)


def shortfalls(
    values: Mapping[str, float], tolerance: float, kinds: Mapping[str, str] | None = None
) -> list[Shortfall]:
    """Hosts whose value, a rate that is the host's own, is lower than the others' median by more than is
    tolerated.

    Of two hosts that differ, the slower one is meant: nothing makes a host compute too fast. What two hosts
    have in common, such as the path between them, is nobody's own: search.py names both.
    """
    expectations = expected_of_peers(values, tolerance, kinds)
    judged = {host for group in by_kind(values, kinds or {}) if len(group) >= FEWEST for host in group}
    return [
        Shortfall(host, value, expected.value, (host,) if host in judged else ())
        for host, value in values.items()
        if (expected := expectations.get(host)) and value < (1 - expected.tolerance) * expected.value
    ]


def different(
    values: Mapping[str, str],
    fact: str,
    noun: str,
    serious: Callable[[str], bool],
    remedy: str = "install or configure it as the others",
) -> list[Finding]:
    """Hosts of which a fact is another one than that of most. Of two that differ nobody knows which is right.

    values: the fact's, by host. noun: the fact in words. serious: whether a host must not have this value;
    where it may, the difference is a warning.
    """
    counts = Counter(values.values())
    if len(counts) < 2:
        return []
    usual, number = counts.most_common(1)[0]
    if number * 2 <= len(values):
        every = "; ".join(f"{name}: {value}" for name, value in values.items())
        text = f"the hosts do not have the same {noun}, and no value is that of most: {every}"
        remedy = "give the job hosts of one kind"
        warns = not any(map(serious, counts))
        return [Finding(Kind.ENVIRONMENT, "cluster", text, remedy, figure=fact, warning=warns)]
    return [
        Finding(
            Kind.ENVIRONMENT,
            f"host {name}",
            f"{name} has another {noun} than the others: {value}, not {usual}",
            remedy,
            (name,) if len(values) >= FEWEST and serious(value) else (),
            fact,
            not serious(value),
        )
        for name, value in values.items()
        if value != usual
    ]


def below_hardware(
    figures: Iterable[Figure], kind: Kind, verb: str, remedy: str, named: Iterable[str] = ()
) -> list[Finding]:
    """One finding of all hosts whose figure falls short of their hardware: what they share, the comparison of
    hosts with each other does not show. No host is drained for it: these are wide floors.

    verb: what they do, before the share. named: places that have a finding already.
    """
    low = [figure for figure in figures if figure.low and figure.where not in set(named)]
    if not low:
        return []
    worst = min(low, key=lambda figure: figure.value)
    where = worst.where if len(low) == 1 else "cluster"
    text = f"{listed([figure.where for figure in low])}: {verb} {worst.value:.0%} of what the hardware can do"
    return [Finding(kind, where, text, remedy, figure=worst.name)]


def listed(names: Sequence[str], most: int = 4) -> str:
    """The first ones, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def hosts_at_fault(before: Iterable[CheckResult]) -> set[str]:
    """Hosts of which an earlier check has found that they compute or copy slowly, or wrongly: what they do
    with others is then slow, too, and no fault of its own.
    """
    return {
        host
        for result in before
        for finding in result.findings
        if finding.kind in _CAUSES
        for host in finding.hosts
    }
