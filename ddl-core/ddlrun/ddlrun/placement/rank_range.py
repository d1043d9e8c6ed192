"""How many ranks of `-np MIN:MAX` the hosts have room for."""

from collections.abc import Mapping

from ..checks.inventory import HostInventory
from ..command_line.rank_range import RankRange
from ..errors import Code, LaunchError
from ..hosts.host_list import THIS_MACHINE, HostList
from .slots import ranks_by_host


def room(hosts: HostList, facts: Mapping[str, HostInventory], accelerators: int | None) -> int:
    """How many ranks the hosts take: as many as without -np; this machine, where nobody named hosts, one for
    each of its GPUs or cores.
    """
    if hosts.origin == THIS_MACHINE and accelerators is None:
        inventory = next((facts[host.name] for host in hosts.hosts if host.name in facts), None)
        if inventory is not None and not inventory.accelerators:
            return max(1, int(min(inventory.core_count, inventory.quota or inventory.core_count)))
    return sum(ranks_by_host(hosts, facts, None, accelerators).values())


def fitting(
    np: int | RankRange | None,
    hosts: HostList,
    facts: Mapping[str, HostInventory],
    accelerators: int | None,
) -> int | None:
    """The number of ranks to start: of a range as many as fit. Raises LaunchError (SLOTS) where these are
    fewer than its minimum.
    """
    if not isinstance(np, RankRange):
        return np
    available_slots = room(hosts, facts, accelerators)
    if available_slots < np.least:
        raise LaunchError(
            Code.SLOTS,
            f"at least {np.least} ranks asked for, {available_slots} slots there",
            f"in -np {np}, on {', '.join([host.name for host in hosts.hosts][:8]) or 'no host'}",
            f"lower -np to {max(available_slots, 1)}:{np.most}, or name more hosts or slots: -H host:SLOTS",
        )
    return min(available_slots, np.most)


def grows(np: RankRange, now: int, available_slots: int) -> bool:
    """Whether a job of `now` ranks would get more ranks on hosts with so many slots."""
    return min(available_slots, np.most) > now
