"""The hosts of a real cluster: from the command line, a file, or the scheduler's job around this command.

ddlrun reads all three; what it says is taken, so that both commands understand the same.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from ..common.running import run_text
from .errors import BenchError
from .scenarios import Order, Scenario

_LIMIT_SECONDS = 60


def real_scenario(
    prefix: Path,
    arguments: list[str],
    racks: int,
    order: Order,
    host_rate: str | None,
    uplink_rate: str | None,
) -> Scenario:
    """The scenario of the hosts that ``ddlrun WORDS`` would use; words such as ``-H a:2,b:2``.

    prefix: environment that holds ddlrun. racks: the hosts in their order are divided into so many blocks.
    Rates are for the bandwidth lower bound alone: None where it shall not be shown.
    """
    ddlrun = prefix / "bin" / "ddlrun"
    command = [str(ddlrun), *arguments, "-json", "true"]
    try:
        done = run_text(command, _LIMIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"{ddlrun}, which finds the hosts: {error}; say --prefix ddl=DIR") from error
    try:
        hosts = json.loads(done.stdout)["hosts"] if done.returncode == 0 else None
    except (ValueError, KeyError) as error:
        raise BenchError(f"{' '.join(command)}: its answer cannot be read: {error}") from error
    if hosts is None:
        raise BenchError(f"no hosts: {(done.stderr or done.stdout).strip()}")
    slots = tuple(int(host["ranks"]) for host in hosts)
    names = tuple(str(host["name"]) for host in hosts)
    local = names == ("localhost",)
    title = "cluster-" + "+".join(map(str, slots))
    return Scenario(title, slots, racks, order, host_rate, uplink_rate, () if local else names)
