"""The recorded runs, a file in the tree for each kind of machine and speed of its cores, and comparing with
them."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ddl_validate.allreduce.errors import BenchError
from ddl_validate.allreduce.sizes import show_size
from ddl_validate.common.files import write_atomic

from .targets import CPU_RATIO, LAYOUTS, RATIO

FOLDER = Path(__file__).resolve().parent / "measured"
KIND, SCHEMA = "allreduce-ratios", 1
#: What a figure may be worse than recorded, beyond the spread of the rounds of both runs.
TOLERANCE = 0.15
SOURCES = ("ddl-core/libddl/include", "ddl-core/libddl/src")


def file_name(machine: dict[str, Any], share: float) -> str:
    """The name of a record: kind of machine and speed of the cores."""
    kind = re.sub(r"[^a-z0-9]+", "-", str(machine["processor"]).lower()).strip("-")
    return f"{kind}-{machine['cores']}-cores{'' if share == 1 else f'-share-{share:g}'}.json"


def write(record: dict[str, Any], folder: Path = FOLDER) -> Path:
    """Write a record: a line for each cell, so that a change shows which."""
    cells = ",\n".join("  " + json.dumps(_rounded(cell)) for cell in record["cells"])
    others = {name: value for name, value in record.items() if name != "cells"}
    head = json.dumps({**others, "cells": []}, indent=1).removesuffix("[]\n}")
    path = folder / file_name(record["machine"], record["cpu_share"]["share"])
    write_atomic(path, f"{head}[\n{cells}\n ]\n}}\n")
    return path


def _rounded(value: Any) -> Any:
    """Four significant digits are more than the times are worth."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def read(path: Path) -> dict[str, Any]:
    """A record; BenchError where it cannot be read."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BenchError(f"{path}: {error}; write it again: ci/bench --record") from error
    if not isinstance(data, dict) or (data.get("kind"), data.get("schema")) != (KIND, SCHEMA):
        raise BenchError(f"{path}: no record of ci/bench ({KIND}, schema {SCHEMA}): ci/bench --record")
    return data


def read_all(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """All records, in the order of their names."""
    return [read(path) for path in sorted(folder.glob("*.json"))]


def lacking(record: dict[str, Any]) -> list[str]:
    """Cells of the table that a run does not hold, or holds without a peer."""
    compared = {(cell["layout"], cell["bytes"]) for cell in record["cells"] if cell["peer"]}
    return [
        f"{name}, {show_size(size)}"
        for name, layout in LAYOUTS.items()
        for size in layout.sizes
        if (name, size) not in compared
    ]


def compare(run: dict[str, Any], recorded: dict[str, Any], layouts: Iterable[str]) -> list[str]:
    """What is worse in a run than recorded, a line for each; layouts: those that were measured.

    Only ratios of DDL to the best peer of the same run count: a machine that is slower for all changes
    nothing. A cell or a peer that the run lacks is worse, too: the best of fewer peers is easier to reach.
    """
    worse = [
        f"{name} was not measured, but is part of the record"
        for name, peer in recorded["peers"].items()
        if peer["available"] and not run["peers"].get(name, {}).get("available")
    ]
    cells = {(cell["layout"], cell["bytes"]): cell for cell in run["cells"]}
    requested = set(layouts)
    for old in recorded["cells"]:
        if old["layout"] not in requested:
            continue
        where = f"{old['layout']}, {show_size(old['bytes'])}"
        new = cells.get((old["layout"], old["bytes"]))
        if new is None or new["peer"] is None:
            worse.append(f"{where}: not measured, but is part of the record")
        elif old["peer"] is not None:
            worse += [f"{where}: {text}" for text in _worse(new, old)]
    return worse


def _worse(new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    regressions = []
    allowed = TOLERANCE + _spread(new) + _spread(old)
    if new[RATIO] < old[RATIO] * (1 - allowed):
        best = f"{new['peer']['name']}, {new['peer']['setting']}"
        regressions.append(
            f"{new[RATIO]:.2f}x the speed of the best peer ({best}); "
            f"recorded {old[RATIO]:.2f}x, allowed {old[RATIO] * (1 - allowed):.2f}x"
        )
    same = all(new["peer"][word] == old["peer"][word] for word in ("name", "setting"))
    if same and new[CPU_RATIO] is not None and old[CPU_RATIO] is not None:
        most = old[CPU_RATIO] * (1 + allowed)
        if new[CPU_RATIO] > most:
            regressions.append(
                f"{new[CPU_RATIO]:.2f}x the processor time of {new['peer']['name']}; "
                f"recorded {old[CPU_RATIO]:.2f}x, allowed {most:.2f}x"
            )
    return regressions


def _spread(cell: dict[str, Any]) -> float:
    """How far the ratio of a round is usually from the median, as a part of it: one disturbed round does not
    count."""
    rounds: Iterable[tuple[float, float]] = zip(cell["peer"]["rounds"], cell["ddl"]["rounds"], strict=False)
    ratios = [peer / ddl for peer, ddl in rounds]
    middle = statistics.median(ratios)
    return statistics.median(abs(ratio - middle) for ratio in ratios) / middle
