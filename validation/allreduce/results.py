"""What was measured, kept cell by cell in the output folder, and the document made of it.

A cell is one scenario, peer, setting and size: a file ``cells/<scenario>/<peer>.<setting>.<bytes>.json``.
The document ``results.json`` is described in docs/allreduce-benchmark.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .bounds import PAYLOAD, tiers, wire_bound
from .errors import BenchError
from .scenarios import Scenario

SCHEMA = 1
DOCUMENT = "results.json"
DDL = "ddl"
_NUMBERS = re.compile(r"\[\s+-?[0-9][-0-9.e+,\s]*\]")


@dataclass
class Cell:
    """One scenario, peer, setting and size. identity: of everything that the times depend on."""

    peer: str
    setting: str
    bytes: int
    identity: str
    seconds: list[float]
    warmup: list[float]
    cut: bool
    options: dict[str, str] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "median": self.median, "least": min(self.seconds)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Cell:
        wanted = cls.__dataclass_fields__
        cell = cls(**{name: value for name, value in data.items() if name in wanted})
        if not cell.seconds:
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


def identity(*parts: object) -> str:
    """A short text that changes with any of the parts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def write_atomic(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


def dump(data: object) -> str:
    """JSON with one key a line, and a list of numbers on one line."""
    return _NUMBERS.sub(lambda found: " ".join(found[0].split()), json.dumps(data, indent=1))


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
        except (OSError, ValueError, TypeError):
            return None
        return cell if cell.identity == identity else None


@dataclass
class Outcome:
    """The cells of one scenario. left_out: sizes that were not tried, by peer and setting. descriptions:
    what each library said of itself, by peer and setting."""

    scenario: Scenario
    cells: list[Cell] = field(default_factory=list)
    descriptions: dict[str, dict[str, Any]] = field(default_factory=dict)
    measured_rates: dict[str, float] = field(default_factory=dict)
    left_out: list[dict[str, Any]] = field(default_factory=list)

    def best(self, size: int, peer: str) -> Cell | None:
        """A peer's fastest setting at this size."""
        found = [cell for cell in self.cells if cell.bytes == size and cell.peer == peer]
        return min(found, key=lambda cell: cell.median, default=None)

    def best_peer(self, size: int) -> Cell | None:
        """The fastest setting of all peers but DDL at this size."""
        found = [cell for cell in self.cells if cell.bytes == size and cell.peer != DDL]
        return min(found, key=lambda cell: cell.median, default=None)

    def summary(self, size: int) -> dict[str, Any]:
        """The figures of one row, all in seconds or as ratios; None where one side is missing.

        ddl_over_bound: DDL's time over the bound. speedup: the best peer's time over DDL's.
        """
        bound, ddl, peer = wire_bound(self.scenario, size), self.best(size, DDL), self.best_peer(size)
        return {
            "bytes": size,
            "bound": bound,
            "ddl": ddl.median if ddl else None,
            "ddl_over_bound": ddl.median / bound if ddl and bound else None,
            "best_peer": {"peer": peer.peer, "setting": peer.setting, "median": peer.median}
            if peer
            else None,
            "speedup": peer.median / ddl.median if ddl and peer else None,
        }

    @property
    def sizes(self) -> list[int]:
        return sorted({cell.bytes for cell in self.cells})

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
                {**cell.as_json(), "bound": wire_bound(self.scenario, cell.bytes)}
                for cell in sorted(self.cells, key=lambda cell: (cell.bytes, cell.peer, cell.median))
            ],
            "left_out": self.left_out,
            "descriptions": self.descriptions,
            "summary": [self.summary(size) for size in self.sizes],
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
