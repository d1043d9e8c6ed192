"""Layouts of hosts, racks and ranks. Pure data, checked when made."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..cluster import ClusterError
from ..cluster.spec import rate_in_bits
from .errors import BenchError

Order = Literal["by-host", "shuffled"]
ORDERS: tuple[Order, ...] = ("by-host", "shuffled")
HOST_RATE, UPLINK_RATE = "1gbit", "200mbit"
MAX_RANKS = 1024


def bits(rate: str) -> int:
    """Bits a second of a rate such as 200mbit; BenchError where it cannot be read."""
    try:
        return rate_in_bits(rate) or 0
    except ClusterError as error:
        raise BenchError(str(error)) from None


@dataclass(frozen=True)
class Scenario:
    """Ranks on hosts in racks.

    slots: ranks of each host. racks: the hosts are divided into so many blocks, as equal as can be. order:
    by-host numbers the ranks host after host; shuffled deals them out cyclically over the hosts, taken in
    turn from each rack (h1, h3, h2, h4 for two racks of two): neighbours in rank are never in one rack.
    host_rate, uplink_rate: of each host's link and of each rack's uplink, as tc writes rates; None where it
    is not limited or not known. names: of the hosts; h1, h2, … by default.
    """

    name: str
    slots: tuple[int, ...]
    racks: int = 1
    order: Order = "by-host"
    host_rate: str | None = HOST_RATE
    uplink_rate: str | None = UPLINK_RATE
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.slots or min(self.slots) < 1:
            raise BenchError(f"hosts {list(self.slots)}: give the ranks of each host, 1 at least: 3,2,2,1")
        if not 1 <= self.racks <= len(self.slots):
            raise BenchError(f"{self.racks} racks for {len(self.slots)} host(s); 1 to {len(self.slots)}")
        if not 2 <= self.ranks <= MAX_RANKS:
            raise BenchError(f"{self.ranks} rank(s); an all-reduce needs 2, and {MAX_RANKS} are the most")
        if self.order not in ORDERS:
            raise BenchError(f"order {self.order!r}; one of: {', '.join(ORDERS)}")
        for rate in (self.host_rate, self.uplink_rate):
            if rate is not None:
                bits(rate)
        if self.names and (len(self.names) != len(self.slots) or len(set(self.names)) != len(self.names)):
            raise BenchError(
                f"hosts {', '.join(self.names)}: one name for each of {len(self.slots)}, all different"
            )

    @property
    def ranks(self) -> int:
        return sum(self.slots)

    @property
    def hosts(self) -> tuple[str, ...]:
        return self.names or tuple(f"h{i + 1}" for i in range(len(self.slots)))

    def rack_of(self, host: int) -> int:
        """Rack of the host with this index, as the emulated cluster divides them."""
        return host * self.racks // len(self.slots)

    def rack_members(self) -> list[list[str]]:
        """Names of the hosts of each rack."""
        members: list[list[str]] = [[] for _ in range(self.racks)]
        for index, host in enumerate(self.hosts):
            members[self.rack_of(index)].append(host)
        return members

    def sequence(self) -> list[str]:
        """The host of each rank."""
        remaining = dict(zip(self.hosts, self.slots, strict=True))
        if self.order == "by-host":
            return [host for host, count in remaining.items() for _ in range(count)]
        members = self.rack_members()
        turns = [rack[i] for i in range(max(map(len, members))) for rack in members if i < len(rack)]
        dealt: list[str] = []
        while len(dealt) < self.ranks:
            for host in turns:
                if remaining[host]:
                    remaining[host] -= 1
                    dealt.append(host)
        return dealt

    def dimensions(self) -> tuple[int, int, int] | None:
        """Ranks a host, hosts a rack, racks; None where they are not all alike."""
        lengths = {len(rack) for rack in self.rack_members()}
        if len(set(self.slots)) > 1 or len(lengths) > 1:
            return None
        return self.slots[0], lengths.pop(), self.racks

    def topology(self) -> dict[str, Any]:
        """The racks as a topology file of DDL (docs/cluster/topology.md); no speeds: DDL measures them."""
        racks = [{"name": f"rack{i + 1}", "hosts": hosts} for i, hosts in enumerate(self.rack_members())]
        return {"version": 1, "groups": racks}

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "names": list(self.hosts), "slots": list(self.slots), "ranks": self.ranks}


def by_tier(scenario: Scenario) -> list[Scenario]:
    """The links of a scenario one by one, then all of it: ranks of one host; one rank on each host of a rack;
    one rank in each rack. What would be the whole scenario, or a single rank, is left out."""
    names, slots, rates = scenario.hosts, scenario.slots, (scenario.host_rate, scenario.uplink_rate)
    tiers: list[Scenario] = []

    def add(tier: str, hosts: list[int], ranks: tuple[int, ...], racks: int = 1) -> None:
        if sum(ranks) < 2 or (len(hosts) == len(slots) and ranks == slots):
            return
        # a single host that is not a real one is this machine
        subset = tuple(names[host] for host in hosts) if scenario.names or len(hosts) > 1 else ()
        limits = rates if len(hosts) > 1 else (None, None)
        tiers.append(Scenario(f"{scenario.name}-{tier}", ranks, racks, scenario.order, *limits, subset))

    fullest = slots.index(max(slots))
    add("in-host", [fullest], (slots[fullest],))
    rack = [host for host in range(len(slots)) if scenario.rack_of(host) == 0]
    add("in-rack" if scenario.racks > 1 else "between-hosts", rack, (1,) * len(rack))
    if scenario.racks > 1:
        first = [names.index(members[0]) for members in scenario.rack_members()]
        add("between-racks", first, (1,) * len(first), scenario.racks)
    return [*tiers, scenario]


NAMED: dict[str, tuple[Scenario, str]] = {
    scenario.name: (scenario, text)
    for scenario, text in [
        (Scenario("4x2-1rack", (2,) * 4), "4 hosts of 2 ranks on one switch"),
        (
            Scenario("4x2-2racks", (2,) * 4, 2),
            "4 hosts of 2 ranks in 2 racks, ranks numbered host after host",
        ),
        (
            Scenario("4x2-2racks-shuffled", (2,) * 4, 2, "shuffled"),
            "the same, ranks dealt out over racks and hosts",
        ),
        (Scenario("8x1-4racks", (1,) * 8, 4), "8 hosts of 1 rank in 4 racks"),
        (Scenario("3+2+2+1-2racks", (3, 2, 2, 1), 2), "hosts of 3, 2, 2 and 1 ranks in 2 racks"),
        (
            Scenario("1x2", (2,), 1, "by-host", None, None),
            "2 ranks of this machine: shared memory, no emulation",
        ),
    ]
}


def named(name: str) -> Scenario:
    """The scenario of this name; BenchError lists the names that exist."""
    if name not in NAMED:
        raise BenchError(f"unknown scenario {name!r}; one of: {', '.join(NAMED)}; or say --hosts 3,2,2,1")
    return NAMED[name][0]


def of_hosts(text: str | None, racks: int, host_rate: str, uplink_rate: str) -> Scenario | None:
    """The emulated hosts of a command line: `text` has the ranks of each, such as 2,2,2,2; None without it.

    ValueError where that is not a list of numbers, BenchError where there can be no such hosts.
    """
    if not text:
        return None
    slots = tuple(int(word) for word in text.split(","))
    return Scenario("hosts", slots, racks, "by-host", host_rate, uplink_rate)
