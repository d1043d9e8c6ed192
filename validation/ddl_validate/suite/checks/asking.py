"""Asking every host by a program that needs no MPI (validate/probe, told by probe/lines.py)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...common.own_package import module_command, module_variables
from ...common.running import RunFailed
from ..bench import Bench
from ..errors import ValidateError
from ..model import CheckResult
from ..probe.lines import heard


def program(bench: Bench, name: str, *words: str) -> list[str]:
    return module_command(bench.prefix, f"suite.probe.{name}", *words)


def ask(bench: Bench, result: CheckResult, name: str, words: Sequence[str], log: str) -> dict[str, Any]:
    """By host, what `probe/NAME.py` told, in the order of the hosts. RunFailed or ValidateError where a host
    has told nothing.
    """
    told: dict[int, Any]
    try:
        told = heard(
            bench.start(log, program(bench, name, *words), result, ranks=1, variables=module_variables())
        )
    except RunFailed:
        # what was told before another host failed names that one
        told = heard(Path(result.logs[-1]).read_text(errors="replace"))
        if len(told) < len(bench.hosts):
            raise
    silent = [host.name for rank, host in enumerate(bench.hosts) if rank not in told]
    if silent:
        raise ValidateError(f"{log}: no answer from {', '.join(silent)}; log {result.logs[-1]}")
    return {host.name: told[rank] for rank, host in enumerate(bench.hosts)}


def last_json(printed: str) -> dict[str, Any] | None:
    """The last line that is a JSON object: what rank 0 of a program found."""
    for line in reversed(printed.splitlines()):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                return found
    return None
