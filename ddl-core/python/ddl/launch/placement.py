"""How many ranks each host gets, and which cores each rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import Code, LaunchError
from .hosts import HostList
from .preflight import Facts


@dataclass(frozen=True)
class Seat:
    """One rank's place. cores: numbers of its cores on the host, empty where it is not bound."""

    rank: int
    host: str
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Placement:
    """Ranks in order, and why it is so. crowded: somewhere ranks outnumber cores, so waiting ranks must
    yield.
    """

    seats: tuple[Seat, ...]
    bound: bool
    crowded: bool
    reason: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Ranks on each host, hosts in the order of their first ranks."""
        counts: dict[str, int] = {}
        for seat in self.seats:
            counts[seat.host] = counts.get(seat.host, 0) + 1
        return counts

    def host_of(self, rank: int) -> str:
        return self.seats[rank].host if rank < len(self.seats) else "?"


def ranks_by_host(
    hosts: HostList, facts: Mapping[str, Facts], np: int | None, accelerators: int | None
) -> dict[str, int]:
    """Number of ranks on each host that gets any.

    A host takes: what -accelerators says; else the slots that the user gave; else its accelerators; else the
    scheduler's slots; else one. Where nobody limited the hosts, -np is dealt out evenly; otherwise it fills
    one host after the other.
    """
    limits: dict[str, int] = {}
    limited = True
    for host in hosts.hosts:
        counted = facts[host.name].accelerators if host.name in facts else 0
        if accelerators is not None:
            limits[host.name] = accelerators
        elif hosts.firm and host.slots is not None:
            limits[host.name] = host.slots
        elif counted:
            limits[host.name] = counted if host.slots is None else min(counted, host.slots)
        elif host.slots is not None:
            limits[host.name] = host.slots
        else:
            limits[host.name] = 1
            limited = False
    if np is None:
        return limits
    if not limited and accelerators is None:
        return _dealt(hosts, limits, np)
    total = sum(limits.values())
    if np > total:
        listed = ", ".join(f"{name}:{count}" for name, count in list(limits.items())[:8])
        raise LaunchError(
            Code.SLOTS,
            f"{np} ranks asked for, {total} slots there ({listed})",
            f"in {hosts.origin}",
            f"lower -np to {total}, or give the hosts more slots: -H host:SLOTS",
        )
    made: dict[str, int] = {}
    for name, limit in limits.items():
        if np > 0:
            made[name] = min(limit, np)
            np -= made[name]
    return made


def _dealt(hosts: HostList, limits: Mapping[str, int], np: int) -> dict[str, int]:
    """Slots said by the user first; the rest evenly over the hosts that nobody limited, in blocks."""
    fixed = {host.name: limits[host.name] for host in hosts.hosts if host.slots is not None}
    free = [host.name for host in hosts.hosts if host.slots is None and host.name not in fixed]
    rest = max(0, np - sum(fixed.values()))
    made: dict[str, int] = {}
    for host in hosts.hosts:
        if host.name in fixed:
            share = min(fixed[host.name], np - sum(made.values()))
        else:
            index = free.index(host.name)
            share = rest // len(free) + (index < rest % len(free))
        if share > 0:
            made[host.name] = share
    return made


def split_cores(
    packages: Sequence[Sequence[int]], ranks: int, limit: int | None = None
) -> list[tuple[int, ...]]:
    """A set of cores for each rank, all of one size (unequal ranks would wait for each other), none shared.

    Where the ranks divide evenly over the packages no rank spans two. Fewer cores than ranks: no sets, all
    empty. limit: no set is larger than this.
    """
    total = sum(map(len, packages))
    if ranks > total:
        return [()] * ranks
    groups: list[Sequence[int]] = list(packages)
    each = ranks // len(groups)
    if ranks % len(groups) or any(len(group) < each for group in groups):
        groups = [[core for group in packages for core in group]]
        each = ranks
    size = min(len(group) // each for group in groups)
    taken = min(size, limit or size)
    return [tuple(group[i * size : i * size + taken]) for group in groups for i in range(each)]


def place(
    hosts: HostList,
    facts: Mapping[str, Facts],
    np: int | None = None,
    accelerators: int | None = None,
    cores: int | None = None,
) -> Placement:
    """cores: of each rank; None: all of a host, shared out evenly. Raises LaunchError (SLOTS) where the hosts
    have fewer ranks' places or fewer cores than asked for.
    """
    counts = ranks_by_host(hosts, facts, np, accelerators)
    crowded = [
        name
        for name, count in counts.items()
        if name in facts and count > min(facts[name].core_count, facts[name].quota or float("inf"))
    ]
    unknown = [name for name in counts if name not in facts]
    reason = ""
    if crowded:
        there = facts[crowded[0]].core_count
        quota = facts[crowded[0]].quota
        limit = f", limited to the time of {quota:g}" if quota and quota < there else ""
        reason = f"{counts[crowded[0]]} ranks on {there} cores{limit} of {crowded[0]}"
    elif unknown:
        reason = f"the cores of {unknown[0]} are not known"
    seats: list[Seat] = []
    for name, count in counts.items():
        sets = [()] * count if reason else split_cores(facts[name].cores, count, cores)
        if cores and len(sets[0]) < cores:
            most = len(sets[0])
            has = f"can give {most} to each of {count} ranks" if most else f"is not bound: {reason}"
            raise LaunchError(
                Code.SLOTS,
                f"{cores} cores for each rank were asked for, but the host {has}",
                f"host {name}",
                "lower -cores or the number of ranks, or leave -cores out",
            )
        seats += [Seat(len(seats) + i, name, taken) for i, taken in enumerate(sets)]
    return Placement(tuple(seats), bound=not reason, crowded=bool(crowded), reason=reason)


def _ranges(cores: Sequence[int]) -> str:
    """`0-3,6`."""
    spans: list[list[int]] = []
    for core in sorted(cores):
        if spans and core == spans[-1][1] + 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def rankfile_text(placement: Placement) -> str:
    """The placement in Open MPI's form; only for one that is bound."""
    return "".join(f"rank {seat.rank}={seat.host} slot={_ranges(seat.cores)}\n" for seat in placement.seats)


def hostfile_text(placement: Placement) -> str:
    return "".join(f"{name} slots={count}\n" for name, count in placement.counts.items())
