"""Asking every host by a program that needs no MPI (validate/probe, told by probe/lines.py)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...common.running import RunFailed
from ..bench import Bench
from ..errors import ValidateError
from ..model import CheckResult
from ..probe.lines import heard

_PROBES = f"{__package__.rpartition('.')[0]}.probe"
_TREE = Path(__file__).resolve().parents[len(__package__.split("."))]


def program(bench: Bench, name: str, *words: str) -> list[str]:
    return [str(bench.prefix / "bin/python"), "-m", f"{_PROBES}.{name}", *words]


def variables() -> dict[str, str]:
    """What Python needs to find this package: nothing where it is installed in the environment."""
    if "site-packages" in _TREE.parts:
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(_TREE), os.environ.get("PYTHONPATH", "")]))}


def ask(bench: Bench, result: CheckResult, name: str, words: Sequence[str], log: str) -> dict[str, Any]:
    """By host, what `probe/NAME.py` told, in the order of the hosts. RunFailed or ValidateError where a host
    has told nothing.
    """
    told: dict[int, Any]
    try:
        told = heard(bench.start(log, program(bench, name, *words), result, ranks=1, variables=variables()))
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
