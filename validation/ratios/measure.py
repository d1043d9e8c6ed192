"""Measuring one layout: a short look at the peers' settings, then DDL and the best of them in turn.

The look starts every setting once, the likely ones first, as long as its part of the time lasts. For each
size the fastest settings go on. They and DDL are then measured in rounds, as `ddl-bench` does.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddl_validate.allreduce.bounds import bandwidth_lower_bound
from ddl_validate.allreduce.cpu_share import CpuShare
from ddl_validate.allreduce.peers import Peer, open_testbed
from ddl_validate.allreduce.results import DDL, Cell, Outcome, Store
from ddl_validate.allreduce.runner import Effort, Runner, Turn
from ddl_validate.common.timing_loop import calls_of

from .targets import CPU_RATIO, LARGE, OVER_BOUND, RATIO, Layout

ROUNDS = 3
PEERS = ("openmpi", "mpich", "gloo")
# The best settings of earlier runs; the others follow as they come. Names may go on after these words.
_LIKELY = (
    ("openmpi", "defaults"),
    ("mpich", "yielding"),
    ("gloo", "defaults"),
    ("openmpi", "ring in segments"),
    ("mpich", "Rabenseifner"),
    ("openmpi", "recursive doubling"),
    ("mpich", "recursive doubling"),
    ("openmpi", "Rabenseifner"),
    ("mpich", "release and gather"),
    ("mpich", "ring"),
)
# Of a layout's time, what the look may take.
_LOOK = 0.3
# DDL tries up to 8 plans, twice each, after two calls that were not as predicted. Every peer has as many to
# warm up. A call of LARGE that takes seconds has none: the smaller sizes have made the connections.
_WARMUP_CALLS = 18
_BUDGETS = (0.1, 0.5)
# The look takes the largest size whose lower bound is at most so long, instead of LARGE.
_LOOK_SECONDS = 0.3
# Settings within this factor of the best one go on, at most so many.
_CLOSE, _MOST = 1.1, 2


@dataclass
class Measured:
    """What a layout gave. cells: see cell_of. failures: what did not run, each in a line. wrong: a sum was.
    untried: settings that the time did not suffice for."""

    cells: list[dict[str, Any]] = field(default_factory=list)
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    wrong: bool = False
    untried: list[str] = field(default_factory=list)


def look_size(layout: Layout) -> int:
    """The size that stands for LARGE when settings are compared."""
    size = LARGE
    while (bandwidth_lower_bound(layout.scenario, size) or 0) > _LOOK_SECONDS:
        size //= 2
    return size


def slow(layout: Layout) -> bool:
    """Whether a call of LARGE takes seconds there."""
    return (bandwidth_lower_bound(layout.scenario, LARGE) or 0) > 1


def in_order(turns: Sequence[Turn], first: Sequence[tuple[str, str]], crowded: bool) -> list[Turn]:
    """The peers' turns, first those that the last record names, then the likely ones. crowded: ranks share
    cores, and MPICH is left out where it does not yield."""

    def place(turn: Turn) -> int:
        key = turn.key
        if key in first:
            return -1
        likely = (i for i, (peer, name) in enumerate(_LIKELY) if peer == key[0] and key[1].startswith(name))
        return next(likely, len(_LIKELY))

    peers = [turn for turn in turns if turn.peer.name != DDL]
    if crowded:
        peers = [turn for turn in peers if turn.key != ("mpich", "defaults")]
    return sorted(peers, key=place)


def fastest(cells: Sequence[Cell], size: int, most: int = _MOST) -> list[tuple[str, str]]:
    """The settings that go on at this size: the fastest, and those close to it."""
    ordered = sorted((cell for cell in cells if cell.bytes == size), key=lambda cell: cell.median)
    close = [cell for cell in ordered if cell.median <= _CLOSE * ordered[0].median]
    return [(cell.peer, cell.setting) for cell in close[:most]]


def cell_of(layout: Layout, outcome: Outcome, size: int) -> dict[str, Any] | None:
    """A size's figures: of DDL and of the best peer, each with its rounds, and the targets; None without
    DDL."""
    row, ddl, peer = outcome.summary(size), outcome.best(size, DDL), outcome.best_peer(size)
    if ddl is None:
        return None
    names = {RATIO: "speedup", OVER_BOUND: "ddl_over_lower_bound", CPU_RATIO: "cpu_ratio"}
    figures = {figure: row[name] for figure, name in names.items()}
    return {
        "layout": layout.name,
        "bytes": size,
        "lower_bound": row["lower_bound"],
        "ddl": _side(ddl),
        "peer": {"name": peer.peer, "setting": peer.setting, **_side(peer)} if peer else None,
        **figures,
        "targets": layout.judged(size, figures),
    }


def _side(cell: Cell) -> dict[str, Any]:
    return {"seconds": cell.median, "rounds": cell.round_times, "cpu": cell.cpu_user + cell.cpu_system}


@dataclass
class Bench:
    """Measures layouts. folder: for what is measured. say: takes a line of progress. cores: slows down what
    is started. first: settings of the peers to look at first, by layout."""

    peers: list[Peer]
    folder: Path
    say: Callable[[str], None]
    cores: CpuShare = field(default_factory=CpuShare)
    first: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def run(self, layout: Layout, missing: dict[str, str], seconds: float) -> Measured:
        """Measure a layout in about so many seconds. missing: reasons for peers that are not there."""
        start = time.monotonic()
        peers = [peer for peer in self.peers if peer.name not in layout.without]
        runner = Runner(Store(self.folder / layout.name), peers, layout.sizes, self.say)
        runner.prepare({name: why for name, why in missing.items() if name not in layout.without})
        measured = Measured(peers=runner.versions)
        with open_testbed(layout.scenario, runner.peers, share=self.cores) as testbed:
            runner.open_testbed = lambda scenario, peers: nullcontext(testbed)
            look = self._look(runner, layout, start + _LOOK * seconds, measured)
            picked = {}
            for size in layout.sizes:
                costly = size == LARGE and slow(layout)
                seen = look_size(layout) if size == LARGE else size
                picked[size] = fastest(look.cells, seen, 1 if costly else _MOST)
            spent = time.monotonic() - start
            runner.effort = self._effort(layout, picked, look, seconds - spent, spent)
            outcome = self._rounds(runner, layout, picked)
        for size in layout.sizes:
            cell = cell_of(layout, outcome, size)
            if cell:
                measured.cells.append(cell)
            else:
                measured.failures.append(f"{layout.name}: DDL was not measured at {size} bytes")
        for failure in runner.failures:
            setting = f", {failure.setting}" if failure.setting else ""
            measured.failures.append(f"{layout.name}: {failure.peer}{setting}: {failure.reason}")
            measured.wrong = measured.wrong or failure.wrong
        return measured

    def _look(self, runner: Runner, layout: Layout, until: float, measured: Measured) -> Outcome:
        first = self.first.get(layout.name, [])
        crowded = layout.scenario.ranks > len(os.sched_getaffinity(0))
        tried: list[Turn] = []

        def choose(turns: list[Turn]) -> list[Turn]:
            tried.extend(in_order(turns, first, crowded))
            return tried

        self.say(f"{layout.name}: a look at the settings of the peers")
        runner.choose, runner.until = choose, until
        runner.sizes = tuple(size if size != LARGE else look_size(layout) for size in layout.sizes)
        runner.effort = Effort(budget=0.02, warmups=1, rounds=1)
        outcome = runner.run(layout.scenario)
        runner.until = float("inf")
        started = set(outcome.launches[0]) if outcome.launches else set()
        measured.untried = [turn.name for turn in tried if turn.key not in started]
        return outcome

    def _rounds(self, runner: Runner, layout: Layout, picked: dict[int, list[tuple[str, str]]]) -> Outcome:
        """Rounds of DDL, and of the settings that were picked for each size."""

        def choose(turns: list[Turn]) -> list[Turn]:
            for turn in turns:
                key = turn.key
                turn.sizes = tuple(size for size in picked if key[0] == DDL or key in picked[size])
            return [turn for turn in turns if turn.sizes]

        names = {name for settings in picked.values() for name in settings}
        self.say(f"{layout.name}: DDL beside {len(names)} setting(s) of the peers, {ROUNDS} rounds")
        runner.choose, runner.sizes = choose, layout.sizes
        runner.warmups = {size: warmups(layout, size) for size in layout.sizes}
        return runner.run(layout.scenario)

    @staticmethod
    def _effort(
        layout: Layout, picked: dict[int, list[tuple[str, str]]], look: Outcome, seconds: float, spent: float
    ) -> Effort:
        """The effort of a round that fits into the seconds that are left. spent: by the look."""
        starts = 1 + len({name for settings in picked.values() for name in settings})
        start = spent / max(1, len(look.launches[0]) if look.launches else 1)
        calls = 0.0
        for size, settings in picked.items():
            seen = size if size != LARGE else look_size(layout)
            best = look.best_peer(seen)
            if best:
                call = best.median * size / seen
                calls += call * (1 + len(settings)) * (1 + warmups(layout, size)) * calls_of(size)
        sizes = sum(1 + len(settings) for settings in picked.values())
        budget = (seconds / ROUNDS - starts * start - calls) / sizes
        return Effort(budget=min(max(budget, _BUDGETS[0]), _BUDGETS[1]), warmups=1, rounds=ROUNDS)


def warmups(layout: Layout, size: int) -> int:
    """Repetitions before those that count."""
    if size == LARGE:
        return 0 if slow(layout) else 2
    return math.ceil(_WARMUP_CALLS / calls_of(size))
