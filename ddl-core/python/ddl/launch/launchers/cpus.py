"""CPUs of ranks, for launchers that bind by a rank's number on its host."""

from collections.abc import Mapping

from ..facts import Facts
from ..placement import Placement


def of_cores(facts: Facts) -> dict[int, tuple[int, ...]]:
    """The kernel's numbers of the CPUs of each core."""
    return {
        core: cpus for domain in facts.domains for core, cpus in zip(domain.cores, domain.cpus, strict=False)
    }


def by_local_rank(placed: Placement, facts: Mapping[str, Facts]) -> list[list[int]]:
    """CPUs of the first, second, … rank of a host; a host with fewer ranks than others uses the first of
    them. Empty where nothing is bound, or where the hosts differ.
    """
    largest = max(placed.counts, key=lambda name: placed.counts[name])
    if not placed.bound or any(name not in facts for name in placed.counts):
        return []
    known = of_cores(facts[largest])
    if any(of_cores(facts[name]) != known for name in placed.counts):
        return []
    seats = [seat for seat in placed.seats if seat.host == largest]
    if any(core not in known for seat in seats for core in seat.cores):
        return []
    return [sorted(cpu for core in seat.cores for cpu in known[core]) for seat in seats]
