"""What was measured, kept cell by cell in the output folder, and the document made of it.

A cell is one scenario, peer, setting and size: a file ``cells/<scenario>/<peer>.<setting>.<bytes>.json``.
The document ``results.json`` is described in docs/reference/allreduce-benchmark.md.
"""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..common import bandwidth
from ..common.files import write_atomic
from .bounds import PAYLOAD, bandwidth_lower_bound, tiers
from .errors import BenchError
from .scenarios import Scenario

SCHEMA = 3
DOCUMENT = "results.json"
DDL = "ddl"
_NUMBERS = re.compile(r"\[\s+-?[0-9][-0-9.e+,\s]*\]")


@dataclass
class Round:
    """What one start measured: seconds of a call, the slowest rank's, in order; warmup: of the repetitions
    before those; user, system: processor seconds of a call, of all threads of all ranks together, one for
    each of seconds."""

    seconds: list[float]
    warmup: list[float]
    user: list[float]
    system: list[float]

    def time(self, statistic: str) -> float:
        """The median, or the mean, of the seconds."""
        return statistics.fmean(self.seconds) if statistic == "mean" else statistics.median(self.seconds)


@dataclass
class Cell:
    """One scenario, peer, setting and size. identity: of everything that the times depend on. rounds: in
    their order. cut: not measured after the first round, because another setting of the peer is far faster.
    ranks: how many took part.

    wire: the format in which it sends (bounds.WIRE_FORMATS).

    statistic: of the repetitions of a round, median or mean. Cores that are slowed down pause every now and
    then: the median of repetitions that are shorter is that of full speed.

    Each figure is the median over the rounds, so that one round in which the machine was disturbed does not
    count. Processor times are means within a round: the kernel divides them into user and system by what it
    finds at each tick of its clock, which is right over many calls alone.
    """

    peer: str
    setting: str
    bytes: int
    identity: str
    ranks: int
    rounds: list[Round] = field(default_factory=list)
    cut: bool = False
    options: dict[str, str] = field(default_factory=dict)
    statistic: str = "median"
    wire: str = "full"

    @property
    def least(self) -> float:
        return min(second for run in self.rounds for second in run.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.round_times)

    @property
    def round_times(self) -> list[float]:
        return [run.time(self.statistic) for run in self.rounds]

    @property
    def algbw(self) -> float:
        return bandwidth.algbw(self.bytes, self.median)

    @property
    def busbw(self) -> float:
        return bandwidth.busbw(self.bytes, self.median, self.ranks)

    @property
    def cpu_user(self) -> float:
        return statistics.median(statistics.fmean(run.user) for run in self.rounds)

    @property
    def cpu_system(self) -> float:
        return statistics.median(statistics.fmean(run.system) for run in self.rounds)

    def as_json(self) -> dict[str, Any]:
        figures = ("median", "least", "round_times", "algbw", "busbw", "cpu_user", "cpu_system")
        return {**asdict(self), **{name: getattr(self, name) for name in figures}}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Cell:
        names = cls.__dataclass_fields__
        cell = cls(**{name: value for name, value in data.items() if name in names})
        cell.rounds = [Round(**fields) for fields in data["rounds"]]
        if not cell.rounds or not all(
            run.seconds and len(run.seconds) == len(run.user) == len(run.system) for run in cell.rounds
        ):
            raise ValueError("no times")
        return cell


@dataclass
class Failure:
    """A peer, or one of its settings, that gave no result. wrong: its sum was wrong."""

    scenario: str
    peer: str
    setting: str | None
    reason: str
    wrong: bool = False


def dump(data: object) -> str:
    """JSON with one key a line, and a list of numbers on one line."""
    return _NUMBERS.sub(lambda match: " ".join(match[0].split()), json.dumps(data, indent=1))


class Store:
    """The cells of an output folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, scenario: str, peer: str, setting: str, size: int) -> Path:
        plain = [re.sub(r"[^A-Za-z0-9+_-]+", "-", word) for word in (scenario, peer, setting)]
        return self.folder / "cells" / plain[0] / f"{plain[1]}.{plain[2]}.{size}.json"

    def used(self) -> bool:
        return (self.folder / "cells").exists() or (self.folder / DOCUMENT).exists()

    def put(self, scenario: str, cell: Cell) -> None:
        write_atomic(self._path(scenario, cell.peer, cell.setting, cell.bytes), dump(cell.as_json()))

    def get(self, scenario: str, peer: str, setting: str, size: int, identity: str) -> Cell | None:
        """The cell, where it was measured under this identity; a broken file counts as not measured."""
        try:
            cell = Cell.from_json(json.loads(self._path(scenario, peer, setting, size).read_text()))
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return cell if cell.identity == identity else None


@dataclass
class Outcome:
    """The cells of one scenario. left_out: sizes that were not tried, by peer and setting. descriptions:
    what each library said of itself, by peer and setting. launches: of each round, what was started in which
    order, as (peer, setting). cores: those that each rank may run on, the same for every peer."""

    scenario: Scenario
    cells: list[Cell] = field(default_factory=list)
    descriptions: dict[str, dict[str, Any]] = field(default_factory=dict)
    measured_rates: dict[str, float] = field(default_factory=dict)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    launches: list[list[tuple[str, str]]] = field(default_factory=list)
    cores: list[str] = field(default_factory=list)

    def find(self, peer: str, setting: str, size: int) -> Cell | None:
        key = (peer, setting, size)
        return next((c for c in self.cells if (c.peer, c.setting, c.bytes) == key), None)

    def best(self, size: int, peer: str) -> Cell | None:
        """A peer's fastest setting at this size; one that was cut only where there is no other."""
        cells = [cell for cell in self.cells if cell.bytes == size and cell.peer == peer]
        return min(cells, key=lambda cell: (cell.cut, cell.median), default=None)

    def best_peer(self, size: int) -> Cell | None:
        """The fastest setting of all peers but DDL at this size."""
        names = {cell.peer for cell in self.cells if cell.peer != DDL}
        cells = [cell for name in names if (cell := self.best(size, name))]
        return min(cells, key=lambda cell: cell.median, default=None)

    def summary(self, size: int) -> dict[str, Any]:
        """The figures of one row, all in seconds or as ratios; None where one side is missing.

        lower_bound: what the bandwidth of the links allows. ddl_over_lower_bound: DDL's time over that of its
        wire format. speedup: the best peer's time over DDL's. cpu_ratio: DDL's processor time over that of
        the best peer, user and system together.
        """
        bound = bandwidth_lower_bound(self.scenario, size)
        ddl, peer = self.best(size, DDL), self.best_peer(size)
        allowed = bandwidth_lower_bound(self.scenario, size, ddl.wire) if ddl else None
        cpu, other = (cell.cpu_user + cell.cpu_system if cell else None for cell in (ddl, peer))
        best_peer = None
        if peer:
            best_peer = {name: getattr(peer, name) for name in ("peer", "setting", "median", "busbw")}
            best_peer["cpu"] = other
        return {
            "bytes": size,
            "lower_bound": bound,
            "ddl": ddl.median if ddl else None,
            "ddl_over_lower_bound": ddl.median / allowed if ddl and allowed else None,
            "ddl_busbw": ddl.busbw if ddl else None,
            "ddl_cpu": cpu,
            "best_peer": best_peer,
            "speedup": peer.median / ddl.median if ddl and peer else None,
            "cpu_ratio": cpu / other if cpu is not None and other else None,
        }

    def as_json(self) -> dict[str, Any]:
        links = [
            {"tier": tier.name, "groups": tier.groups, "payload_bytes_per_second": tier.rate}
            for tier in tiers(self.scenario)
        ]
        return {
            **self.scenario.as_json(),
            "sequence": self.scenario.sequence(),
            "payload_fraction": PAYLOAD,
            "tiers": links,
            "measured_payload_bytes_per_second": self.measured_rates,
            "cells": [
                {**cell.as_json(), "lower_bound": bandwidth_lower_bound(self.scenario, cell.bytes, cell.wire)}
                for cell in sorted(self.cells, key=lambda cell: (cell.bytes, cell.peer, cell.median))
            ],
            "left_out": self.left_out,
            "launches": self.launches,
            "cores": self.cores,
            "descriptions": self.descriptions,
            "summary": [self.summary(size) for size in sorted({cell.bytes for cell in self.cells})],
        }


def read_document(path: Path) -> dict[str, Any]:
    """A results.json, or the one of a folder; BenchError where there is none of this schema."""
    file = path / DOCUMENT if path.is_dir() else path
    try:
        data = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise BenchError(f"{file}: {error}; name the --output folder of a run") from error
    if not isinstance(data, dict) or data.get("kind") != "allreduce" or data.get("schema") != SCHEMA:
        raise BenchError(f"{file}: no result of this benchmark (kind allreduce, schema {SCHEMA})")
    return data
