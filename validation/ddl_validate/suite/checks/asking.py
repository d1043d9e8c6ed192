"""Asking every host by a program that needs no MPI (validate/probe, whose output probe/lines.py reads)."""

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


def program(bench: Bench, name: str, *arguments: str) -> list[str]:
    return module_command(bench.prefix, f"suite.probe.{name}", *arguments)


def ask(bench: Bench, result: CheckResult, name: str, arguments: Sequence[str], log: str) -> dict[str, Any]:
    """By host, what `probe/NAME.py` reported, in the order of the hosts. RunFailed or ValidateError where a
    host has reported nothing.
    """
    answers: dict[int, Any]
    try:
        answers = heard(
            bench.start(log, program(bench, name, *arguments), result, ranks=1, variables=module_variables())
        )
    except RunFailed:
        # what was told before another host failed names that one
        answers = heard(Path(result.logs[-1]).read_text(errors="replace"))
        if len(answers) < len(bench.hosts):
            raise
    silent = [host.name for rank, host in enumerate(bench.hosts) if rank not in answers]
    if silent:
        raise ValidateError(f"{log}: no answer from {', '.join(silent)}; log {result.logs[-1]}")
    return {host.name: answers[rank] for rank, host in enumerate(bench.hosts)}


def last_json(printed: str) -> dict[str, Any] | None:
    """The last line that is a JSON object: what rank 0 of a program found."""
    for line in reversed(printed.splitlines()):
        if line.startswith("{"):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                return value
    return None
