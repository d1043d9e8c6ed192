"""Which rack each host is in: as the user said, else as DDL sees it (Slurm's switches, a topology file)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .checks.environment import answer
from .errors import ValidateError


def equal(hosts: int, racks: int) -> list[int]:
    """The number of each host's rack, where they are in so many of one size, in their order."""
    if racks < 1 or hosts % racks:
        raise ValidateError(
            f"--racks {racks}: {hosts} hosts are not {racks} racks of one size; leave some out (--exclude)"
        )
    return [host // (hosts // racks) for host in range(hosts)]


def seen_by_ddl(prefix: Path, arguments: Sequence[str], hosts: Sequence[str]) -> tuple[list[int] | None, str]:
    """The number of each host's rack, and where DDL knows it from; None where it knows no racks, or not
    those of all these hosts.
    """
    command = [str(prefix / "bin/ddlrun"), *arguments, "-show-topology", "-json", "true"]
    try:
        plan = json.loads(answer(command)[0])
        topology = plan["topology"]
        tier = topology["tiers"][topology["tiers"].index("host") + 1]
        if tier == topology["tiers"][-1]:
            return None, ""
        host_of = [rank["host"] for rank in plan["ranks"]]
        rack_of: dict[str, int] = {}
        for number, group in enumerate(group for group in topology["groups"] if group["tier"] == tier):
            rack_of |= {host_of[rank]: number for rank in group["ranks"]}
        return [rack_of[host] for host in hosts], str(topology["source"])
    except (ValueError, KeyError, TypeError, IndexError):
        return None, ""
