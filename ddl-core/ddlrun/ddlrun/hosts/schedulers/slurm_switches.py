"""The switches above a Slurm job's hosts.

Slurm tells them to the tasks of srun alone (SLURM_TOPOLOGY_ADDR); for all others `scontrol show topology` is
asked.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from ...errors import LaunchError
from .ask import ask
from .slurm import expand_nodelist

# DDL_OPTIONS are words with blanks between, and a variable has 128 KiB.
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LONGEST = 100_000
_DEEPEST = 14


def _entries(text: str) -> list[dict[str, str]]:
    """The lines as their `Key=value` words."""
    lines = (line for line in text.splitlines() if line.strip())
    return [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]


def _expanded(text: str) -> list[str]:
    return expand_nodelist(text, "in `scontrol show topology`") if text and text != "(null)" else []


def parse_switches(text: str, hosts: Mapping[str, str]) -> dict[str, Any] | None:
    """A topology for DDL of these hosts (Slurm's name -> the host's own): groups by leaf switch or block, and
    the switches above them. None where nothing groups them: one group, a host in none, or in several.
    """
    leaves: dict[str, list[str]] = {}
    above: dict[str, list[str]] = {}
    for entry in _entries(text):
        name = entry.get("SwitchName") or entry.get("BlockName") or ""
        if not _NAME.fullmatch(name):
            continue  # a block of blocks has no name of its own that could be shown
        if entry.get("Switches"):
            above[name] = _expanded(entry["Switches"])
        else:
            leaves[name] = [node for node in _expanded(entry.get("Nodes", "")) if node in hosts]
    placed = [node for nodes in leaves.values() for node in nodes]
    if sorted(placed) != sorted(hosts):
        return None

    def group(name: str, depth: int) -> dict[str, Any] | None:
        if depth > _DEEPEST:
            raise ValueError("the switches are too deep")
        if name in leaves:
            leaf_hosts = [hosts[node] for node in leaves[name]]
            return {"name": name, "hosts": leaf_hosts} if leaf_hosts else None
        members = [subtree for child in above.get(name, ()) if (subtree := group(child, depth + 1))]
        # A switch with one switch below it has nothing to choose.
        return members[0] if len(members) == 1 else {"name": name, "groups": members} if members else None

    children = {child for below in above.values() for child in below}
    try:
        roots = [
            subtree for name in [*above, *leaves] if name not in children and (subtree := group(name, 0))
        ]
    except ValueError:
        return None
    top = roots[0] if len(roots) == 1 else {"groups": roots}
    return {"version": 1, "groups": top["groups"]} if "groups" in top else None


def switches(hosts: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str | None, str]:
    """The topology of the hosts as one word for DDL's -topology, and, where that is None, why. hosts: Slurm's
    name -> the host's own.
    """
    text, reason = ask(("scontrol", "show", "topology"), environment)
    if text is None:
        return None, reason
    try:
        topology = parse_switches(text, hosts)
    except LaunchError as error:
        return None, str(error)
    if topology is None:
        return None, "Slurm knows no switches that would group the hosts"
    word = json.dumps(topology, separators=(",", ":"))
    if len(word) > _LONGEST:
        return None, "the hosts are too many to describe in DDL_OPTIONS"
    return word, ""
