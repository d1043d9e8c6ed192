"""The result of one check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

Say = Callable[[str], None]


@dataclass
class Check:
    """One row of the result.

    summary:  what was looked at, in numbers
    findings: what is wrong; empty means passed
    notes:    what a reader should know although nothing is wrong
    parts:    the findings by what was looked at (a package, a process), where each is a result of its own
    """

    name: str
    summary: str
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    parts: dict[str, list[str]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        summary = self.summary if self.ok else f"{len(self.findings)} findings; {self.summary}"
        return {**asdict(self), "ok": self.ok, "summary": summary}
