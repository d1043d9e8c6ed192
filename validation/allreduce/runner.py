"""The matrix of scenarios, peers, settings and sizes: what is measured, in which order, and what is
skipped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import launch, links
from .arena import Arena, EmulatedArena
from .bounds import wire_bound
from .errors import BenchError, LaunchFailed, PeerMissing, WrongSum
from .peers import Peer, Setting
from .results import DDL, Cell, Failure, Outcome, Store, identity
from .scenarios import Scenario
from .sizes import show_seconds, show_size

# A setting this many times slower than the best peer so far is measured once: it cannot become the best.
SLOWER = 1.5
# Settings of a peer, for the estimate.
_TYPICAL = {"openmpi": 7, "mpich": 5}


@dataclass(frozen=True)
class Effort:
    """How often and how long. budget: seconds of one setting and size; least, most: repetitions; silence:
    seconds without a word after which a launch is ended. warmups: repetitions before those that count.
    """

    budget: float = 5.0
    least: int = 3
    most: int = 1000
    silence: float = 300.0
    warmups: int = 2


@dataclass
class Runner:
    """Measures scenarios. say: takes one line of progress at a time.

    only_defaults: leave the peers' other settings out. resume: take cells that the store holds already.
    open_arena: makes the arena of a scenario, given what every host must see.
    """

    store: Store
    peers: list[Peer]
    sizes: tuple[int, ...]
    open_arena: Callable[[Scenario, list[Peer]], Arena]
    say: Callable[[str], None]
    effort: Effort = field(default_factory=Effort)
    only_defaults: bool = False
    resume: bool = False
    measure_links: bool = False
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
                self._lack(peer.name, str(error))
                continue
            self.versions[peer.name] = {
                "title": peer.title,
                "available": True,
                "version": version,
                "prefix": str(peer.prefix),
            }
            able.append(peer)
        self.peers = able
        if not able:
            raise BenchError("no peer can run here: `ddl-bench peers` says what is missing")

    def _lack(self, name: str, reason: str) -> None:
        self.say(f"{name}: not measured: {reason}")
        self.failures.append(Failure("*", name, None, reason))
        self.versions[name] = {"available": False, "reason": reason}

    def lack_scenario(self, name: str, reason: str) -> None:
        """Keep that a whole scenario was not measured."""
        self.say(f"{name}: not measured: {reason}")
        self.failures.append(Failure(name, "all peers", None, reason))

    def estimate(self, scenarios: list[Scenario]) -> float:
        """Seconds that a run may take, roughly: what a setting twice as slow as the wire would need."""
        settings = sum(1 if self.only_defaults else _TYPICAL.get(peer.name, 1) for peer in self.peers)
        total = 0.0
        for scenario in scenarios:
            for size in self.sizes:
                one = 2 * (wire_bound(scenario, size) or size / 1e9)
                total += settings * (
                    one + min(max(self.effort.budget, self.effort.least * one), self.effort.most * one)
                )
            total += 3 * settings
        return total

    def run(self, scenario: Scenario) -> Outcome:
        """Measure one scenario; failures are kept in ``failures`` and the rest is measured."""
        outcome = Outcome(scenario)
        with self.open_arena(scenario, self.peers) as arena:
            if self.measure_links and isinstance(arena, EmulatedArena):
                outcome.measured_rates = links.measure(arena)
                for tier, rate in outcome.measured_rates.items():
                    self.say(f"{scenario.name}: {tier} carry {rate * 8 / 1e6:.1f} Mbit/s of payload")
            for peer in self.peers:
                for setting in peer.settings(arena)[: 1 if self.only_defaults else None]:
                    self._measure(arena, peer, setting, outcome)
        return outcome

    def _measure(self, arena: Arena, peer: Peer, setting: Setting, outcome: Outcome) -> None:
        name = outcome.scenario.name
        key = identity(
            outcome.scenario.as_json(),
            peer.name,
            self._installed[peer.name],
            setting.name,
            # the folder of an arena is another one in each run
            {k: v.replace(str(arena.folder), "") for k, v in setting.options.items()},
            [self.effort.budget, self.effort.least, self.effort.most, self.effort.warmups],
        )
        todo = []
        for size in self.sizes:
            kept = self.store.get(name, peer.name, setting.name, size, key) if self.resume else None
            if kept:
                outcome.cells.append(kept)
            else:
                todo.append(size)
        if not todo:
            self.say(f"{name}: {peer.title}, {setting.name}: all sizes are measured already")
            return
        began = time.monotonic()

        def on_sample(sample: launch.Sample) -> None:
            cell = Cell(
                peer.name,
                setting.name,
                sample.bytes,
                key,
                sample.seconds,
                sample.warmup,
                sample.cut,
                used.options,
            )
            outcome.cells.append(cell)
            self.store.put(name, cell)
            bound = wire_bound(outcome.scenario, sample.bytes)
            ratio = f", {cell.median / bound:.2f} x the bound" if bound else ""
            times = "once" if len(cell.seconds) == 1 else f"{len(cell.seconds)} times"
            self.say(
                f"{name}: {peer.title}, {setting.name}: {show_size(cell.bytes)} in "
                f"{show_seconds(cell.median)}{ratio} ({times}; {time.monotonic() - began:.0f} s)"
            )

        used = setting
        try:
            try:
                report = self._launch(arena, peer, used, todo, outcome, on_sample)
            except LaunchFailed as error:
                refused = used.instead and all(word in error.output for word in used.refusal)
                if not refused or not used.instead:
                    raise
                used = used.instead
                options = " ".join(f"{k}={v}" for k, v in used.options.items()) or "no options"
                self.say(
                    f"{name}: {peer.title}: does not know {' '.join(setting.refusal[1:])}; "
                    f"going on with {options}"
                )
                report = self._launch(arena, peer, used, todo, outcome, on_sample)
        except (LaunchFailed, PeerMissing) as error:
            self.say(f"{name}: {peer.title}, {setting.name}: FAILED: {error}")
            self.failures.append(
                Failure(name, peer.name, setting.name, str(error), wrong=isinstance(error, WrongSum))
            )
            arena.renew()
            return
        if report.description:
            outcome.descriptions[f"{peer.name}, {setting.name}"] = report.description
        self.versions[peer.name]["library"] = report.library.strip()

    def _launch(
        self,
        arena: Arena,
        peer: Peer,
        setting: Setting,
        sizes: list[int],
        outcome: Outcome,
        on_sample: Callable[[launch.Sample], None],
    ) -> launch.Report:
        words = []
        for size in sizes:
            best = outcome.best_peer(size)
            worth = best and peer.name != DDL
            words.append(f"{size}:{SLOWER * best.median:.6g}" if best and worth else str(size))
        effort = self.effort
        arguments = [",".join(words), f"{effort.budget:g}", str(effort.least), str(effort.most)]
        arguments.append(str(effort.warmups))
        report = launch.run(arena, peer.launch(arena, setting, arguments), effort.silence, on_sample)
        if report.abandoned:
            left = sizes[len(report.samples) :]
            shown = ", ".join(show_size(size) for size in left)
            self.say(
                f"{outcome.scenario.name}: {peer.title}, {setting.name}: far slower than others; "
                f"left out: {shown}"
            )
            outcome.left_out.append({"peer": peer.name, "setting": setting.name, "bytes": left})
        elif len(report.samples) != len(sizes):
            raise LaunchFailed(f"{len(report.samples)} of {len(sizes)} sizes were measured")
        return report
