"""CPUs of ranks, for launchers that bind by a rank's number on its host."""

from collections.abc import Mapping

from ...checks.inventory import HostInventory
from ...placement.slots import Placement


def of_cores(facts: HostInventory) -> dict[int, tuple[int, ...]]:
    """The kernel's numbers of the CPUs of each core."""
    return {
        core: cpus for domain in facts.domains for core, cpus in zip(domain.cores, domain.cpus, strict=False)
    }


def by_local_rank(placed: Placement, facts: Mapping[str, HostInventory]) -> list[list[int]]:
    """CPUs of the first, second, … rank of a host; a host with fewer ranks than others uses the first of
    them. Empty where nothing is bound, or where the hosts differ.
    """
    largest = max(placed.counts, key=lambda name: placed.counts[name])
    if not placed.bound or any(name not in facts for name in placed.counts):
        return []
    cpus_by_core = of_cores(facts[largest])
    if any(of_cores(facts[name]) != cpus_by_core for name in placed.counts):
        return []
    slots = [slot for slot in placed.slots if slot.host == largest]
    if any(core not in cpus_by_core for slot in slots for core in slot.cores):
        return []
    return [sorted(cpu for core in slot.cores for cpu in cpus_by_core[core]) for slot in slots]
