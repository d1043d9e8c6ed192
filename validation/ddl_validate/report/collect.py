"""Reads what the build and the benchmarks left behind; missing parts are said to be missing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..allreduce.errors import BenchError
from ..allreduce.results import read_document
from ..gpu import document as gpu_document
from ..trainings.document import KIND as TRAININGS
from ..trainings.document import Document, read


@dataclass
class Facts:
    """Everything the page shows."""

    release: str
    trainings: list[Document] = field(default_factory=list)
    gpus: list[dict[str, Any]] = field(default_factory=list)
    allreduce: list[dict[str, Any]] = field(default_factory=list)
    packages: list[dict[str, Any]] = field(default_factory=list)
    verify: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)


def _load(path: Path, problems: list[str]) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        problems.append(f"{path.name}: {error}")
        return None


def read_channel(channel: Path, problems: list[str]) -> list[dict[str, Any]]:
    """The packages that the channel's index lists, by name."""
    packages = {}
    for index in sorted(channel.glob("*/repodata.json")):
        data = _load(index, problems) or {}
        for records in (data.get("packages", {}), data.get("packages.conda", {})):
            packages.update({record["name"]: record for record in records.values()})
    return [packages[name] for name in sorted(packages)]


def collect(build: Path, release: str) -> Facts:
    """Facts from the build folder: `report/*.json`, `report/*/results.json` and `channel/`."""
    facts = Facts(release)
    for path in sorted((build / "report").glob("*.json")):
        data = _load(path, facts.problems)
        kind = data.get("kind") if isinstance(data, dict) else None
        if kind == gpu_document.KIND:
            if data.get("schema") == gpu_document.SCHEMA:
                facts.gpus.append(data)
            else:
                facts.problems.append(f"{path.name}: of another release; run ddl-gpu-check again")
        elif kind == TRAININGS:
            try:
                facts.trainings.append(read(path))
            except ValueError as error:
                facts.problems.append(f"{path.name}: {error}")
    for path in sorted((build / "report").glob("*/results.json")):
        try:
            facts.allreduce.append(read_document(path))
        except BenchError as error:
            facts.problems.append(str(error))
    facts.packages = read_channel(build / "channel", facts.problems)
    verify = build / "channel" / "verify.json"
    if verify.is_file():
        facts.verify = _load(verify, facts.problems)
    return facts
