"""How many ranks each host gets, and which cores each rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..checks.gpus import Gpu
from ..checks.inventory import Domain, HostInventory
from ..errors import Code, LaunchError
from ..hosts.host_list import HostList


@dataclass(frozen=True)
class Slot:
    """One rank's place. cores: numbers of its cores on the host, empty where it is not bound. gpu: that it
    uses.
    """

    rank: int
    host: str
    cores: tuple[int, ...] = ()
    gpu: Gpu | None = None


@dataclass(frozen=True)
class Placement:
    """Ranks in order, and why it is so. oversubscribed: somewhere ranks outnumber cores."""

    slots: tuple[Slot, ...]
    bound: bool
    oversubscribed: bool
    reason: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Ranks on each host, hosts in the order of their first ranks."""
        counts: dict[str, int] = {}
        for slot in self.slots:
            counts[slot.host] = counts.get(slot.host, 0) + 1
        return counts

    def host_of(self, rank: int) -> str:
        return self.slots[rank].host if rank < len(self.slots) else "?"


def ranks_by_host(
    hosts: HostList, facts: Mapping[str, HostInventory], np: int | None, accelerators: int | None
) -> dict[str, int]:
    """Number of ranks on each host that gets any.

    A host takes: what -accelerators says; else the slots that the user gave; else its accelerators; else the
    scheduler's slots; else one. Where nobody limited the hosts, -np is dealt out evenly; otherwise it fills
    one host after the other. GPUs that ranks may share limit nothing.
    """
    limits: dict[str, int] = {}
    limited, by_gpus = True, False
    for host in hosts.hosts:
        inventory = facts.get(host.name)
        counted = inventory.accelerators if inventory else 0
        sharing = inventory is not None and inventory.gpus_shared and np is not None
        if accelerators is not None:
            limits[host.name] = accelerators
        elif hosts.explicit_slots and host.slots is not None:
            limits[host.name] = host.slots
        elif counted and not sharing:
            limits[host.name] = counted if host.slots is None else min(counted, host.slots)
            by_gpus = True
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
            f"lower -np to {total}, or give the hosts more slots: -H host:SLOTS"
            + ("; -gpus shared lets ranks share GPUs, -gpus none does not count them" if by_gpus else ""),
        )
    counts: dict[str, int] = {}
    for name, limit in limits.items():
        if np > 0:
            counts[name] = min(limit, np)
            np -= counts[name]
    return counts


def _dealt(hosts: HostList, limits: Mapping[str, int], np: int) -> dict[str, int]:
    """Slots said by the user first; the rest evenly over the hosts that nobody limited, in blocks."""
    fixed = {host.name: limits[host.name] for host in hosts.hosts if host.slots is not None}
    free = [host.name for host in hosts.hosts if host.slots is None and host.name not in fixed]
    rest = max(0, np - sum(fixed.values()))
    counts: dict[str, int] = {}
    for host in hosts.hosts:
        if host.name in fixed:
            share = min(fixed[host.name], np - sum(counts.values()))
        else:
            index = free.index(host.name)
            share = rest // len(free) + (index < rest % len(free))
        if share > 0:
            counts[host.name] = share
    return counts


def split_cores(
    domains: Sequence[Domain], ranks: int, limit: int | None = None, gpus: Sequence[Gpu] = ()
) -> list[tuple[int, ...]]:
    """A set of cores for each rank, all of one size (unequal ranks would wait for each other), none shared.

    Where the ranks divide evenly over the NUMA nodes no rank spans two, and where they divide evenly over the
    packages no rank spans two of these. Fewer cores than ranks: no sets, all empty. limit: no set is larger
    than this. gpus: of each rank; where each has one, its cores are of the package that its GPU is attached
    to, and of that very NUMA node where there is room.
    """
    if ranks > sum(len(domain.cores) for domain in domains):
        return [()] * ranks
    by_package = _by_package(domains)
    homes = _packages_of(gpus, domains) if len(gpus) == ranks else None
    parts = _near(by_package, homes, gpus) if homes else None
    if parts is None:
        parts = _evenly(by_package, ranks)
    size = min(len(cores) // len(members) for cores, members in parts)
    if size * ranks * 2 < sum(len(domain.cores) for domain in domains) and not homes:
        # Very unequal groups: to keep them apart would waste more than spanning them.
        parts = [([core for domain in domains for core in domain.cores], list(range(ranks)))]
        size = len(parts[0][0]) // ranks
    sets: dict[int, tuple[int, ...]] = {}
    for cores, members in parts:
        for at, rank in enumerate(members):
            sets[rank] = tuple(cores[at * size : at * size + min(size, limit or size)])
    return [sets[rank] for rank in range(ranks)]


# Cores, and the ranks that share them.
_Part = tuple[list[int], list[int]]


def _by_package(domains: Sequence[Domain]) -> dict[int, list[Domain]]:
    by_package: dict[int, list[Domain]] = {}
    for domain in domains:
        by_package.setdefault(domain.package, []).append(domain)
    return by_package


def gpus_of_ranks(facts: HostInventory, ranks: int) -> list[Gpu]:
    """The GPU of each rank of a host: rank i uses the i-th. Where ranks share GPUs, they are dealt out in
    turn, as frameworks do that take the local rank modulo the number of GPUs. Empty where ranks use none.
    """
    if not facts.gpus or (ranks > len(facts.gpus) and not facts.gpus_shared):
        return []
    return [facts.gpus[rank % len(facts.gpus)] for rank in range(ranks)]


def _packages_of(gpus: Sequence[Gpu], domains: Sequence[Domain]) -> list[int] | None:
    """The package of each GPU; None where that of one is not known, or has no core to give."""
    packages = {domain.node: domain.package for domain in domains if domain.node >= 0}
    homes = [packages[gpu.node] for gpu in gpus if gpu.node in packages]
    return homes if len(homes) == len(gpus) else None


def _near(
    by_package: Mapping[int, Sequence[Domain]], homes: Sequence[int], gpus: Sequence[Gpu]
) -> list[_Part] | None:
    """Every rank in the package of its GPU; None where the cores there do not suffice."""
    parts: list[_Part] = []
    for package, nodes in by_package.items():
        members = [rank for rank, home in enumerate(homes) if home == package]
        if not members:
            continue
        if len(members) > sum(len(node.cores) for node in nodes):
            return None
        if len(members) % len(nodes):
            # In the order of the nodes, so that a rank has cores of its GPU's node where the cut falls right.
            order = [node.node for node in nodes]
            members.sort(key=lambda rank: order.index(gpus[rank].node))
            parts.append(([core for node in nodes for core in node.cores], members))
            continue
        share = len(members) // len(nodes)
        seated: dict[int, list[int]] = {node.node: [] for node in nodes}
        for own_node_only in (True, False):
            for rank in [
                rank for rank in members if not any(rank in residents for residents in seated.values())
            ]:
                candidates = [gpus[rank].node] if own_node_only else list(seated)
                free = [node for node in candidates if len(seated[node]) < share]
                if free:
                    seated[free[0]].append(rank)
        if any(len(node.cores) < share for node in nodes):
            return None
        parts += [(list(node.cores), sorted(seated[node.node])) for node in nodes]
    return parts


def _evenly(by_package: Mapping[int, Sequence[Domain]], ranks: int) -> list[_Part]:
    """Equal numbers of ranks in all NUMA nodes, else in all packages, else anywhere; in order."""
    nodes = [list(domain.cores) for members in by_package.values() for domain in members]
    packages = [[core for domain in members for core in domain.cores] for members in by_package.values()]
    for groups in (nodes, packages):
        each = ranks // len(groups)
        if ranks % len(groups) == 0 and all(len(group) >= each for group in groups):
            return [(group, list(range(at * each, (at + 1) * each))) for at, group in enumerate(groups)]
    return [([core for group in nodes for core in group], list(range(ranks)))]


def place(
    hosts: HostList,
    facts: Mapping[str, HostInventory],
    np: int | None = None,
    accelerators: int | None = None,
    cores: int | None = None,
) -> Placement:
    """cores: of each rank; None: all of a host, shared out evenly. Raises LaunchError (SLOTS) where the hosts
    have fewer ranks' places or fewer cores than asked for.
    """
    counts = ranks_by_host(hosts, facts, np, accelerators)
    oversubscribed = [
        name
        for name, count in counts.items()
        if name in facts and count > min(facts[name].core_count, facts[name].quota or float("inf"))
    ]
    unknown = [name for name in counts if name not in facts]
    reason = ""
    if oversubscribed:
        core_count = facts[oversubscribed[0]].core_count
        quota = facts[oversubscribed[0]].quota
        limit = f", limited to the time of {quota:g}" if quota and quota < core_count else ""
        reason = f"{counts[oversubscribed[0]]} ranks on {core_count} cores{limit} of {oversubscribed[0]}"
    elif unknown:
        reason = f"the cores of {unknown[0]} are not known"
    # More cores than the time that a host's quota leaves would only be waited for.
    quotas = {name: facts[name].quota for name in counts if name in facts}
    shares = {name: max(1, int(quota // counts[name])) for name, quota in quotas.items() if quota}
    limits = {name: min(filter(None, (cores, shares.get(name))), default=None) for name in counts}
    slots: list[Slot] = []
    for name, count in counts.items():
        gpus = gpus_of_ranks(facts[name], count) if name in facts else []
        sets = [()] * count if reason else split_cores(facts[name].domains, count, limits[name], gpus)
        if cores and len(sets[0]) < cores:
            most = len(sets[0])
            has = f"can give {most} to each of {count} ranks" if most else f"is not bound: {reason}"
            raise LaunchError(
                Code.SLOTS,
                f"{cores} cores for each rank were asked for, but the host {has}",
                f"host {name}",
                "lower -cores or the number of ranks, or leave -cores out",
            )
        first = len(slots)
        slots += [Slot(first + i, name, taken, gpus[i] if gpus else None) for i, taken in enumerate(sets)]
    return Placement(tuple(slots), bound=not reason, oversubscribed=bool(oversubscribed), reason=reason)


def ranges(cores: Sequence[int]) -> str:
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
    return "".join(f"rank {slot.rank}={slot.host} slot={ranges(slot.cores)}\n" for slot in placement.slots)


def hostfile_text(placement: Placement) -> str:
    return "".join(f"{name} slots={count}\n" for name, count in placement.counts.items())
