"""Reads what the build and the benchmarks left behind; missing parts are said to be missing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..allreduce.errors import BenchError
from ..allreduce.results import read_document
from ..gpu import document as gpu_document
from ..training_speed.measure import SCHEMA as SPEED_SCHEMA


@dataclass
class Package:
    """One package of the channel; `size` in bytes."""

    name: str
    version: str
    build: str
    license: str
    size: int


@dataclass
class Facts:
    """Everything the page shows."""

    release: str
    scaling: list[dict[str, Any]] = field(default_factory=list)
    frameworks: list[dict[str, Any]] = field(default_factory=list)
    training_speed: list[dict[str, Any]] = field(default_factory=list)
    gpus: list[dict[str, Any]] = field(default_factory=list)
    allreduce: list[dict[str, Any]] = field(default_factory=list)
    packages: list[Package] = field(default_factory=list)
    verify: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)


def _load(path: Path, problems: list[str]) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        problems.append(f"{path.name}: {error}")
        return None


def read_channel(channel: Path, problems: list[str]) -> list[Package]:
    """The packages that the channel's index lists, by name."""
    packages: dict[str, Package] = {}
    for index in sorted(channel.glob("*/repodata.json")):
        data = _load(index, problems)
        if not data:
            continue
        for record in [*data.get("packages", {}).values(), *data.get("packages.conda", {}).values()]:
            packages[record["name"]] = Package(
                record["name"],
                record["version"],
                record["build"],
                record.get("license") or "not stated",
                int(record.get("size") or 0),
            )
    return [packages[name] for name in sorted(packages)]


def collect(build: Path, release: str) -> Facts:
    """Facts from the build folder: `report/*.json`, `report/*/results.json` and `channel/`."""
    facts = Facts(release)
    for path in sorted((build / "report").glob("*.json")):
        data = _load(path, facts.problems)
        if isinstance(data, dict) and data.get("kind") == "scaling":
            facts.scaling.append(data)
        elif isinstance(data, dict) and data.get("kind") == "frameworks":
            facts.frameworks.append(data)
        elif isinstance(data, dict) and data.get("kind") == gpu_document.KIND:
            if data.get("schema") == gpu_document.SCHEMA:
                facts.gpus.append(data)
            else:
                facts.problems.append(f"{path.name}: of another release; run ddl-gpu-check again")
        elif isinstance(data, dict) and data.get("kind") == "training-speed":
            if data.get("schema") == SPEED_SCHEMA:
                facts.training_speed.append(data)
            else:
                facts.problems.append(f"{path.name}: of an earlier release; measure it again")
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
