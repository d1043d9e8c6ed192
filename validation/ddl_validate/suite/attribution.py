"""Which host falls short of the others, and which shortfalls are mere effects of another one."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .kinds import FEWEST, by_kind
from .model import CheckResult, Kind

_CAUSES = (Kind.WRONG_RESULT, Kind.SLOW_HOST, Kind.SLOW_MEMORY)


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
    values: Mapping[str, float], kinds: Mapping[str, str] | None = None
) -> dict[str, float]:
    """For each host, the median of the values of the others of its kind; nothing for one that is alone.

    kinds: of each host; None: all are of one kind.
    """
    return {
        host: statistics.median_high(values[other] for other in group if other != host)
        for group in by_kind(values, kinds or {})
        if len(group) > 1
        for host in group
    }


def shortfalls(
    values: Mapping[str, float], tolerance: float, kinds: Mapping[str, str] | None = None
) -> list[Shortfall]:
    """Hosts whose value, a rate that is the host's own, is lower than the others' median by more than
    `tolerance`.

    Of two hosts that differ, the slower one is meant: nothing makes a host compute too fast. What two hosts
    have in common, such as the path between them, is nobody's own: search.py names both.
    """
    expected = expected_of_peers(values, kinds)
    judged = {host for group in by_kind(values, kinds or {}) if len(group) >= FEWEST for host in group}
    return [
        Shortfall(host, value, expected[host], (host,) if host in judged else ())
        for host, value in values.items()
        if host in expected and value < (1 - tolerance) * expected[host]
    ]


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
