"""The document of a validation: JSON that the report, the history and a later comparison read."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import ValidateError
from .model import CheckResult, Finding, Status, exit_code, result_from_json

KIND, SCHEMA = "cluster-validation", 1
PENDING = "pending"
"""A fact of a check that the run has not come to: it is under way, or was cut off before."""


@dataclass
class Document:
    """A run of `wmlce validate`.

    level:    smoke, daily or burn-in
    hosts:    names, in the order of the ranks; ranks: of each host
    racks:    number of each host's rack, where the site's topology says so
    kinds:    of each host: its processor, size of memory and GPUs
    software: package and version, as on the first host
    machine:  processor, cores, memory … of the first host
    command:  what was typed
    """

    level: str
    hosts: list[str]
    ranks: list[int]
    racks: list[int] | None = None
    kinds: list[str] = field(default_factory=list)
    site: str = ""
    command: str = ""
    started: str = ""
    seconds: float = 0.0
    release: str = ""
    software: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    results: list[CheckResult] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        return [finding for result in self.results for finding in result.findings]

    @property
    def faults(self) -> list[Finding]:
        """What makes the run fail."""
        return [finding for finding in self.findings if not finding.warning]

    @property
    def exit_code(self) -> int:
        return exit_code(self.results)

    @property
    def finished(self) -> bool:
        return not any(result.facts.get(PENDING) for result in self.results)

    @property
    def not_judged(self) -> list[dict[str, str]]:
        """Everything of which this run says neither good nor bad: check, what, and why."""
        listed = []
        for result in self.results:
            if result.status in (Status.SKIPPED, Status.BROKEN):
                listed.append({"check": result.name, "what": "all of it", "why": result.reason})
            listed += [
                {"check": result.name, "what": name, "why": why} for name, why in result.not_judged.items()
            ]
        return listed

    @property
    def verdict(self) -> str:
        if self.faults:
            return "failed"
        return "passed" if self.finished else "incomplete"

    def as_json(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if name != "results"}
        return {
            "kind": KIND,
            "schema": SCHEMA,
            **plain,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "not_judged": self.not_judged,
            "checks": [result.as_json() for result in self.results],
        }


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def read(path: Path) -> Document:
    """A document of this kind; ValidateError where it is none."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValidateError(f"{path}: {error}") from error
    if not isinstance(data, dict) or data.get("kind") != KIND or data.get("schema") != SCHEMA:
        raise ValidateError(f"{path}: no result of `wmlce validate` (kind {KIND}, schema {SCHEMA})")
    try:
        results = [result_from_json(check) for check in data["checks"]]
        plain = {
            name: value
            for name, value in data.items()
            if name not in ("kind", "schema", "verdict", "exit_code", "not_judged", "checks")
        }
        return Document(**plain, results=results)
    except (KeyError, TypeError, ValueError) as error:
        raise ValidateError(f"{path}: a damaged result of `wmlce validate`: {error!r}") from error
