"""Which host falls short of the others, and which shortfalls are mere effects of another one."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .model import CheckResult, Kind

_CAUSES = (Kind.WRONG_RESULT, Kind.SLOW_HOST, Kind.SLOW_MEMORY)


@dataclass(frozen=True)
class Shortfall:
    """A host's figure, and the median of the other hosts'."""

    host: str
    value: float
    expected: float

    @property
    def share(self) -> float:
        return self.value / self.expected


def expected_of_peers(values: Mapping[str, float]) -> dict[str, float]:
    """For each host, the median of the others' values; nothing for a host that is alone."""
    if len(values) < 2:
        return {}
    return {
        host: statistics.median_high(value for other, value in values.items() if other != host)
        for host in values
    }


def shortfalls(values: Mapping[str, float], tolerance: float) -> list[Shortfall]:
    """Hosts whose value, a rate that is the host's own, is lower than the others' median by more than
    `tolerance`.

    Of two hosts that differ, the slower one is meant: nothing makes a host compute too fast. What two hosts
    have in common, such as the path between them, is nobody's own: search.py names both.
    """
    expected = expected_of_peers(values)
    return [
        Shortfall(host, value, expected[host])
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
