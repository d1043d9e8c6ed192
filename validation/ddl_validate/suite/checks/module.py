"""The environment as a module: `module load` finds it on every host, in a fresh login shell."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from ..bench import Bench
from ..model import CheckResult, Finding, Kind, Status, status_of
from .asking import ask

TITLE = "module load in a login shell of each host"
_NAME = "ibm-wml-ce"
_NO_COMMAND = "no module command"
_REMEDY = (
    "compare MODULEPATH and the mounted file systems with those of a good host: module use, module avail"
)


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    """Skipped where the environment is no module: `wmlce module install` gives it a name that says so."""
    start = time.monotonic()
    result = CheckResult("module", TITLE, Status.SKIPPED)
    prefix = bench.prefix.resolve()
    if prefix.parent.name != _NAME:
        result.reason = f"{prefix} was not installed by `wmlce module install`"
        return result
    name = f"{_NAME}/{prefix.name}"
    states = ask(bench, result, "login_module", (name,), "module")
    result.facts = {"module": name, "hosts": states}
    if all(state["state"] == _NO_COMMAND for state in states.values()):
        result.reason = "no host has a module command in a login shell"
    else:
        result.findings = findings(name, str(prefix), states)
        result.status = status_of(result.findings)
    result.seconds = time.monotonic() - start
    return result


def findings(name: str, prefix: str, states: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """states: the report of probe/login_module.py, by host."""
    ddlrun = os.path.join(prefix, "bin", "ddlrun")
    faults = []
    for host, state in states.items():
        if state["state"] == _NO_COMMAND:
            text = f"{host} has no module command in a login shell, and other hosts have"
        elif state["state"] != "loaded":
            text = f"`module load {name}` fails on {host}: {state['message']}"
        elif state["prefix"] != prefix:
            text = f"`module load {name}` gives {state['prefix']} on {host}, not {prefix}"
        elif state["ddlrun"] != ddlrun:
            text = f"after `module load {name}` on {host}, ddlrun is {state['ddlrun']}, not {ddlrun}"
        else:
            continue
        faults.append(Finding(Kind.ENVIRONMENT, f"host {host}", text, _REMEDY, (host,)))
    return faults
