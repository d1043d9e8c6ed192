"""The matrix of scenarios, peers, settings and sizes: what is measured, in which order, and what is
skipped.

A scenario is measured in rounds. Each round starts every setting of every peer once, which measures all
sizes; the order rotates from round to round. After the first round a setting goes on only with the sizes at
which it was not far slower than the best setting of the same peer: every peer, DDL too, is measured as well
as the others where it is at its best.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from ..common.files import identity
from . import launch, links, rotation
from .bounds import bandwidth_lower_bound
from .errors import BenchError, LaunchFailed, PeerMissing, WrongSum
from .peers import PEERS, Peer, Setting
from .results import Cell, Failure, Outcome, Store
from .scenarios import Scenario
from .sizes import show_seconds, show_size
from .testbed import EmulatedTestbed, Testbed

# A setting this many times slower than the best of its peer cannot become the best: it gets one round.
SLOWER = 1.5
# Settings of a peer, for the estimate: those of the first round, and how many of them go on.
_TYPICAL, _REMAINING = {"openmpi": 7, "mpich": 6, "ucc": 4, "oneccl": 5}, 2
_START_SECONDS = 3.0


@dataclass(frozen=True)
class Effort:
    """How often and how long. rounds: starts of each setting. In a round, for one setting and size, budget:
    seconds; least, most: repetitions; warmups: repetitions before those that count. silence: seconds without
    a word after which a launch is ended."""

    budget: float = 1.5
    least: int = 1
    most: int = 1000
    silence: float = 300.0
    warmups: int = 2
    rounds: int = 3


@dataclass
class Turn:
    """A setting of a peer and what became of it in the rounds before. used: the setting that takes its place
    where the peer does not know it. sizes: those that it measures; all of the run where None."""

    peer: Peer
    setting: Setting
    used: Setting
    failed: bool = False
    sizes: tuple[int, ...] | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.peer.name, self.setting.name

    @property
    def name(self) -> str:
        return f"{self.peer.title}, {self.setting.name}"


@dataclass
class Runner:
    """Measures scenarios. say: takes one line of progress at a time.

    only_defaults: leave the peers' other settings out. resume: take cells that the store holds already.
    open_testbed: makes the testbed of a scenario, given what every host must see. conditions: what else the
    times depend on, such as the speed of the cores. requested: peers that were named: a run without them is
    incomplete. choose: which turns there are, in which order, out of all of them. warmups: by size, instead
    of effort.warmups. until: on the clock of time.monotonic(), after which the first round starts only peers
    that it has not started yet.
    """

    store: Store
    peers: list[Peer]
    sizes: tuple[int, ...]
    say: Callable[[str], None]
    effort: Effort = field(default_factory=Effort)
    only_defaults: bool = False
    resume: bool = False
    measure_links: bool = False
    requested: tuple[str, ...] = ()
    conditions: dict[str, Any] = field(default_factory=dict)
    open_testbed: Callable[[Scenario, list[Peer]], AbstractContextManager[Testbed]] | None = None
    choose: Callable[[list[Turn]], list[Turn]] | None = None
    warmups: dict[int, int] = field(default_factory=dict)
    until: float = math.inf
    failures: list[Failure] = field(default_factory=list)
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    _installed: dict[str, str] = field(default_factory=dict)

    def prepare(self, missing: dict[str, str]) -> None:
        """Compile what is needed; peers that cannot run are named and left out. missing: reasons known
        before."""
        for name, reason in missing.items():
            self._lack(name, reason)
        able = []
        for peer in self.peers:
            try:
                version = peer.version()
                self._installed[peer.name] = peer.prepare()
            except PeerMissing as error:
                self._lack(peer.name, str(error), absent=False)
                continue
            facts = {"version": version, "prefix": str(peer.prefix)}
            self.versions[peer.name] = {"title": peer.title, "available": True, **facts}
            able.append(peer)
        self.peers = able
        if not able:
            raise BenchError("no peer can run here: `ddl-bench peers` says what is missing")

    def _lack(self, name: str, reason: str, absent: bool = True) -> None:
        self.say(f"{name}: not measured: {reason}")
        if not absent or name in self.requested or not PEERS[name].optional:
            self.failures.append(Failure("*", name, None, reason))
        self.versions[name] = {"available": False, "reason": reason}

    def lack_scenario(self, name: str, reason: str) -> None:
        """Keep that a whole scenario was not measured."""
        self.say(f"{name}: not measured: {reason}")
        self.failures.append(Failure(name, "all peers", None, reason))

    def estimate(self, scenarios: list[Scenario]) -> float:
        """Seconds that a run may take, roughly: what a setting twice as slow as the wire would need."""
        effort, total = self.effort, 0.0
        for peer in self.peers:
            first = 1 if self.only_defaults else _TYPICAL.get(peer.name, 1)
            starts = first + (effort.rounds - 1) * min(first, _REMAINING)
            for scenario in scenarios:
                total += starts * _START_SECONDS
                for size in self.sizes:
                    call = 2 * (bandwidth_lower_bound(scenario, size) or size / 1e9)
                    measured = min(max(effort.budget, effort.least * call), effort.most * call)
                    total += starts * (effort.warmups * call + measured)
        return total

    def run(self, scenario: Scenario) -> Outcome:
        """Measure one scenario; failures are kept in ``failures`` and the rest is measured."""
        outcome = Outcome(scenario)
        assert self.open_testbed is not None
        with self.open_testbed(scenario, self.peers) as testbed:
            if self.measure_links and isinstance(testbed, EmulatedTestbed):
                outcome.measured_rates = links.measure(testbed)
                for tier, rate in outcome.measured_rates.items():
                    self.say(f"{scenario.name}: {tier} carry {rate * 8 / 1e6:.1f} Mbit/s of payload")
            most = 1 if self.only_defaults else None
            turns = rotation.interleave(
                [
                    [Turn(peer, setting, setting) for setting in peer.settings(testbed)[:most]]
                    for peer in self.peers
                ]
            )
            turns = self.choose(turns) if self.choose else turns
            for number in range(self.effort.rounds):
                started: list[tuple[str, str]] = []
                outcome.launches.append(started)
                for turn in rotation.order(turns, number, self.effort.rounds):
                    late = number == 0 and time.monotonic() > self.until
                    if late and turn.peer.name in {peer for peer, _ in started}:
                        continue
                    if not turn.failed and self._measure(testbed, turn, number, outcome):
                        started.append(turn.key)
                if number == 0:
                    self._cut(outcome)
        return outcome

    def _cut(self, outcome: Outcome) -> None:
        """After the first round: mark what is far slower than another setting of the same peer."""
        for cell in outcome.cells:
            rivals = [c for c in outcome.cells if (c.peer, c.bytes) == (cell.peer, cell.bytes)]
            best = min(rival.round_times[0] for rival in rivals)
            cut = cell.round_times[0] > SLOWER * best
            if cut != cell.cut:
                cell.cut = cut
                self.store.put(outcome.scenario.name, cell)

    def _key(self, testbed: Testbed, turn: Turn, outcome: Outcome) -> str:
        effort = self.effort
        return identity(
            outcome.scenario.as_json(),
            turn.peer.name,
            self._installed[turn.peer.name],
            turn.setting.name,
            # the folder of a testbed is another one in each run
            {k: v.replace(str(testbed.folder), "") for k, v in turn.setting.options.items()},
            testbed.variables,
            self.conditions,
            [effort.budget, effort.least, effort.most, effort.warmups, effort.rounds, *self.warmups.items()],
        )

    def _todo(self, testbed: Testbed, turn: Turn, number: int, outcome: Outcome) -> list[int]:
        """The sizes that are to be measured in this round; what the store holds is taken from there."""
        name = outcome.scenario.name
        pending = []
        for size in self.sizes if turn.sizes is None else turn.sizes:
            cell = outcome.find(*turn.key, size)
            if cell is None and number == 0 and self.resume:
                key = self._key(testbed, turn, outcome)
                cell = self.store.get(name, *turn.key, size, key)
                if cell:
                    outcome.cells.append(cell)
            if cell is None:
                # a size that gave nothing in the first round is not tried again
                if number == 0:
                    pending.append(size)
            elif len(cell.rounds) <= number and not (number and cell.cut):
                pending.append(size)
        return pending

    def _measure(self, testbed: Testbed, turn: Turn, number: int, outcome: Outcome) -> bool:
        """One start, unless nothing is left to do; whether there was one. A failure is kept, and ends the
        turn."""
        name = outcome.scenario.name
        todo = self._todo(testbed, turn, number, outcome)
        if not todo:
            if number == 0:
                self.say(f"{name}: {turn.name}: all sizes are measured already")
            return False
        start = time.monotonic()

        def on_sample(sample: launch.Sample) -> None:
            cell = self._keep(testbed, turn, outcome, sample)
            bound = bandwidth_lower_bound(outcome.scenario, sample.bytes, cell.wire)
            figure = cell.round_times[-1]
            ratio = f", {figure / bound:.2f} x the lower bound" if bound else ""
            count = len(sample.times.seconds)
            times = "once" if count == 1 else f"{count} times"
            self.say(
                f"{name} [{number + 1}/{self.effort.rounds}]: {turn.name}: {show_size(cell.bytes)} in "
                f"{show_seconds(figure)}{ratio} ({times}; {time.monotonic() - start:.0f} s)"
            )

        try:
            try:
                report = self._launch(testbed, turn, number, todo, outcome, on_sample)
            except LaunchFailed as error:
                used = turn.used
                refused = used.instead and all(word in error.output for word in used.refusal)
                if not refused or not used.instead:
                    raise
                turn.used = used.instead
                options = " ".join(f"{k}={v}" for k, v in turn.used.options.items()) or "no options"
                self.say(
                    f"{name}: {turn.peer.title}: does not know {' '.join(used.refusal[1:])}; "
                    f"continuing with {options}"
                )
                report = self._launch(testbed, turn, number, todo, outcome, on_sample)
        except (LaunchFailed, PeerMissing) as error:
            self.say(f"{name}: {turn.name}: FAILED: {error}")
            self.failures.append(Failure(name, *turn.key, str(error), wrong=isinstance(error, WrongSum)))
            turn.failed = True
            testbed.renew()
            return True
        if report.description:
            outcome.descriptions[", ".join(turn.key)] = report.description
        self.versions[turn.peer.name]["library"] = report.library.strip()
        return True

    def _keep(self, testbed: Testbed, turn: Turn, outcome: Outcome, sample: launch.Sample) -> Cell:
        """The cell of a sample, with the sample added to it and stored."""
        cell = outcome.find(*turn.key, sample.bytes)
        if cell is None:
            cell = Cell(
                *turn.key,
                sample.bytes,
                self._key(testbed, turn, outcome),
                outcome.scenario.ranks,
                options=turn.used.options,
                statistic="mean" if testbed.share.share < 1 else "median",
                wire=turn.peer.wire,
            )
            outcome.cells.append(cell)
        cell.rounds.append(sample.times)
        self.store.put(outcome.scenario.name, cell)
        return cell

    def _launch(
        self,
        testbed: Testbed,
        turn: Turn,
        number: int,
        sizes: list[int],
        outcome: Outcome,
        on_sample: Callable[[launch.Sample], None],
    ) -> launch.Report:
        requests = []
        for size in sizes:
            rivals = [cell.median for cell in outcome.cells if cell.bytes == size and number == 0]
            requests.append(f"{size}:{min(rivals):.6g}" if rivals else str(size))
        effort = self.effort
        arguments = [",".join(requests), f"{effort.budget:g}", str(effort.least), str(effort.most)]
        warmups = [self.warmups.get(size, effort.warmups) for size in sizes]
        arguments.append(",".join(map(str, warmups)) if self.warmups else str(effort.warmups))
        order = turn.peer.launch(testbed, turn.used, arguments)
        report = launch.run(testbed, order, effort.silence, on_sample, outcome.cores or None)
        outcome.cores = report.cores
        if report.abandoned:
            skipped = sizes[len(report.samples) :]
            listed = ", ".join(show_size(size) for size in skipped)
            self.say(f"{outcome.scenario.name}: {turn.name}: far slower than others; left out: {listed}")
            outcome.left_out.append({"peer": turn.peer.name, "setting": turn.setting.name, "bytes": skipped})
        elif len(report.samples) != len(sizes):
            raise LaunchFailed(f"{len(report.samples)} of {len(sizes)} sizes were measured")
        return report
