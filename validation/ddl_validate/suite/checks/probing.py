"""Starting a probe (validate/probe) on hosts, and reading the line of JSON that it ends with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...common.running import RunFailed
from ..bench import Bench, Host
from ..errors import ValidateError
from ..model import CheckResult
from .asking import last_json

_PROBES = f"{__package__.rpartition('.')[0]}.probe"


def probe(
    bench: Bench,
    result: CheckResult,
    name: str,
    arguments: Sequence[str] = (),
    hosts: Sequence[Host] | None = None,
    ranks: int = 1,
    log: str | None = None,
    variables: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """What `probe/NAME.py` found, with `ranks` on each of `hosts`. RunFailed where it says nothing.

    options: further ones of ddlrun
    """
    program = [str(bench.prefix / "bin/python"), "-P", "-m", f"{_PROBES}.{name}"]
    program += ["--ranks", str(ranks), "--seconds", f"{bench.level.seconds:g}"]
    program += ["--tolerance", f"{bench.tolerance:g}", *arguments]
    try:
        printed = bench.start(log or f"probe-{name}", program, result, hosts, ranks, variables, options)
    except RunFailed:
        # a probe whose messages are stuck cannot end in order, but it has said what it found
        report = last_json(_log_of(result))
        if report is None:
            raise
        return report
    report = last_json(printed)
    if report is None:
        raise ValidateError(f"the probe {name} printed no result; its output: {result.logs[-1]}")
    return report


def _log_of(result: CheckResult) -> str:
    try:
        with open(result.logs[-1], errors="replace") as log:
            return log.read()
    except OSError:
        return ""
