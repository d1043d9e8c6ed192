"""The layouts and sizes that are measured, and the speed to reach in each cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ddl_validate.allreduce.errors import BenchError
from ddl_validate.allreduce.scenarios import Scenario, named

KIB, MIB = 1 << 10, 1 << 20
SMALL = (4 * KIB, 64 * KIB, MIB)
LARGE = 64 * MIB

#: Figures of a cell: the best peer's time over DDL's, DDL's time over the lower bound, and DDL's processor
#: time over that of this peer. Of the first more is better, of the others less.
RATIO, OVER_BOUND, CPU_RATIO = "ratio", "over_bound", "cpu_ratio"


@dataclass(frozen=True)
class Layout:
    """A place to measure in. least: by size the least ratio to the best peer. bound: the most that LARGE may
    take, over the lower bound. minutes: its part of the time, against those of the others. without: peers
    that are left out, with reasons."""

    scenario: Scenario
    title: str
    sizes: tuple[int, ...]
    minutes: float
    least: dict[int, float] = field(default_factory=dict)
    bound: float | None = None
    without: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.scenario.name

    @property
    def emulated(self) -> bool:
        """Whether it needs emulated hosts, and so root."""
        return len(self.scenario.slots) > 1

    def judged(self, size: int, figures: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """The targets of a cell with this size, each with its limit and whether it is met; None where the
        figure is missing."""
        limits = {RATIO: self.least[size]} if size in self.least else {}
        if size == LARGE and self.bound is not None:
            limits[OVER_BOUND] = self.bound
        limits[CPU_RATIO] = 1.0 if size <= MIB else 1.2
        judged: dict[str, dict[str, Any]] = {}
        for name, limit in limits.items():
            value = figures[name]
            met = None if value is None else value >= limit if name == RATIO else value <= limit
            judged[name] = {"limit": limit, "met": met}
        return judged


def verdict(cells: Sequence[dict[str, Any]]) -> str:
    """How many targets of cells are met."""
    met = [target["met"] is True for cell in cells for target in cell["targets"].values()]
    return f"{sum(met)} of {len(met)} targets are met."


def _one_host(ranks: int, minutes: float) -> Layout:
    scenario = Scenario(f"1x{ranks}", (ranks,), 1, "by-host", None, None)
    slow = f"{ranks} processes that import torch take longer to start than all that is measured"
    return Layout(scenario, f"1 x {ranks}", SMALL, minutes, dict.fromkeys(SMALL, 1.1), without={"gloo": slow})


_ALL = (*SMALL, LARGE)
_EVEN = dict.fromkeys(SMALL, 1.0)

LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(named("1x2"), "1 x 2", _ALL, 0.5, {4 * KIB: 1.2, 64 * KIB: 1.2, MIB: 1.1, LARGE: 1.5}),
        _one_host(16, 0.7),
        _one_host(64, 1.2),
        Layout(named("4x2-1rack"), "4 x 2", _ALL, 1.4, {**_EVEN, LARGE: 1.12}, 1.02),
        Layout(named("4x2-2racks"), "4 x 2, 2 racks", _ALL, 1.5, _EVEN, 1.03),
        Layout(named("4x2-2racks-shuffled"), "4 x 2, 2 racks, shuffled", _ALL, 1.7, _EVEN, 1.03),
        Layout(named("8x1-4racks"), "8 x 1, 4 racks", _ALL, 1.7, _EVEN, 1.03),
        # what is promised of its small sizes is their number of messages, which counted costs check
        Layout(named("3+2+2+1-2racks"), "3+2+2+1, 2 racks", _ALL, 1.4, bound=1.05),
    )
}


def layout(name: str) -> Layout:
    """The layout of this name; BenchError lists those that exist."""
    if name not in LAYOUTS:
        raise BenchError(f"unknown layout {name!r}; one of: {', '.join(LAYOUTS)}")
    return LAYOUTS[name]
