"""What an emulated cluster looks like: hosts, racks, slots, rates. Pure data, checked when it is made."""

import ipaddress
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .errors import ClusterError

_RATE = re.compile(r"([1-9][0-9]*)(kbit|mbit|gbit)")
_UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,13}[a-z0-9])?")
_IPV4, _IPV6 = ipaddress.ip_network("10.77.0.0/16"), ipaddress.ip_network("fd77::/64")
MAX_HOSTS = 250
_MAX_RAILS = 8


def rate_in_bits(rate: str | None) -> int | None:
    """Bits per second of a rate as tc writes it (``200mbit``); None stands for an unlimited link."""
    if rate is None:
        return None
    match = _RATE.fullmatch(rate)
    if not match:
        raise ClusterError(f"rate {rate!r}: write a whole number and kbit, mbit or gbit, such as 200mbit")
    return int(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True)
class HostSpec:
    """One host.

    hidden: folders that are empty on it. accepts_key: False makes its sshd refuse the cluster's key.
    noise: what its shell prints before every command that comes by ssh. shm_bytes: size of its /dev/shm.
    overlays: pairs of a file's path on it and the file whose content is read there instead, on it alone.
    link_rate: of its link, in place of the cluster's; rail_rates: of rails, with their numbers. cores:
    processors' worth of time that all its processes together get (a quota); None is unlimited. environment:
    variables of its commands, beside the cluster's.
    """

    name: str
    slots: int = 1
    rack: int = 0
    hidden: tuple[str, ...] = ()
    accepts_key: bool = True
    noise: str = ""
    shm_bytes: int | None = None
    overlays: tuple[tuple[str, str], ...] = ()
    link_rate: str | None = None
    cores: float | None = None
    environment: tuple[tuple[str, str], ...] = ()
    rail_rates: tuple[tuple[int, str], ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ClusterError(f"host name {self.name!r}: lower-case letters, digits and dashes, at most 15")
        if self.slots < 1:
            raise ClusterError(f"host {self.name}: {self.slots} slots; at least 1 is needed")
        if self.rack < 0:
            raise ClusterError(f"host {self.name}: rack {self.rack} is negative")
        for rate in (self.link_rate, *(rate for _, rate in self.rail_rates)):
            rate_in_bits(rate)
        if self.cores is not None and not self.cores > 0:
            raise ClusterError(f"host {self.name}: the time of {self.cores:g} cores; write more than 0")
        for path in self.hidden:
            if not Path(path).is_dir():
                raise ClusterError(f"host {self.name}: cannot hide {path!r}: no such folder")
        for path, source in self.overlays:
            if not Path(path).is_absolute() or not Path(source).is_file():
                raise ClusterError(
                    f"host {self.name}: overlay {path!r} by {source!r}: write an absolute path and a file"
                )


@dataclass(frozen=True)
class ClusterSpec:
    """A whole cluster.

    link_rate, uplink_rate: of each host's link and of each rack's uplink, each direction; None is unlimited.
    uplink_rates: of racks with another one, with their numbers.
    shared: folders below /tmp that all hosts see (each host has its own /tmp otherwise).
    environment: variables of every command, also over ssh.
    user: the account that commands run as.
    life_seconds: the cluster ends by itself after this time, whatever happened to its owner.
    absent: names that resolve to an address at which nothing answers.
    ipv6: hosts have addresses of IPv6 alone.
    rails: networks that every host has a port in: eth0, eth1 … Racks are in the first one alone.
    """

    hosts: tuple[HostSpec, ...]
    link_rate: str | None = None
    uplink_rate: str | None = None
    shared: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    life_seconds: int = 1800
    absent: tuple[str, ...] = ()
    uplink_rates: tuple[tuple[int, str], ...] = ()
    ipv6: bool = False
    rails: int = 1

    def __post_init__(self) -> None:
        if not 1 <= len(self.hosts) <= MAX_HOSTS:
            raise ClusterError(f"{len(self.hosts)} hosts; 1 to {MAX_HOSTS} are possible")
        names = [host.name for host in self.hosts] + list(self.absent)
        double = sorted({name for name in names if names.count(name) > 1})
        if double:
            raise ClusterError(f"host names must differ; given twice: {', '.join(double)}")
        racks = sorted({host.rack for host in self.hosts})
        if racks != list(range(len(racks))):
            raise ClusterError(f"racks are numbered 0, 1, 2, …; given: {racks}")
        rate_in_bits(self.link_rate)
        rate_in_bits(self.uplink_rate)
        for rack, rate in self.uplink_rates:
            if rack not in racks:
                raise ClusterError(f"a rate for the uplink of rack {rack}; racks are numbered {racks}")
            rate_in_bits(rate)
        if not 1 <= self.rails <= _MAX_RAILS or (self.rails > 1 and self.ipv6):
            raise ClusterError(f"{self.rails} rails; 1 to {_MAX_RAILS} are possible, and 1 with IPv6")
        if self.life_seconds < 1:
            raise ClusterError(f"a life of {self.life_seconds} s; at least 1 s is needed")
        for path in self.shared:
            if not Path(path).is_dir():
                raise ClusterError(f"cannot share {path!r}: no such folder")

    @classmethod
    def even(cls, hosts: int, slots: int = 1, racks: int = 1, **others: Any) -> "ClusterSpec":
        """``hosts`` equal hosts h1, h2, … in ``racks`` blocks."""
        return cls.uneven([slots] * hosts, racks, **others)

    @classmethod
    def uneven(cls, slots: list[int], racks: int = 1, **others: Any) -> "ClusterSpec":
        """One host for each entry of ``slots``, in ``racks`` blocks as equal as can be."""
        if not 1 <= racks <= max(len(slots), 1):
            raise ClusterError(f"{racks} racks for {len(slots)} hosts; give 1 to {len(slots)}")
        hosts = tuple(
            HostSpec(f"h{i + 1}", slots=count, rack=i * racks // len(slots)) for i, count in enumerate(slots)
        )
        return cls(hosts, **others)

    @property
    def racks(self) -> int:
        return 1 + max(host.rack for host in self.hosts)

    def address(self, index: int, rail: int = 0) -> str:
        """Address of the host with this index; absent names follow the hosts."""
        network = _IPV6 if self.ipv6 else _IPV4
        return str(network[256 + index] + rail * network.num_addresses)

    @property
    def prefix_length(self) -> int:
        return (_IPV6 if self.ipv6 else _IPV4).prefixlen

    def etc_hosts(self) -> str:
        names = [host.name for host in self.hosts] + list(self.absent)
        lines = [f"{self.address(index)} {name}" for index, name in enumerate(names)]
        return "\n".join(["127.0.0.1 localhost", "::1 localhost", *lines, ""])

    def hostfile(self) -> str:
        """The hosts in Open MPI's form."""
        return "".join(f"{host.name} slots={host.slots}\n" for host in self.hosts)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ClusterSpec":
        hosts = tuple(HostSpec(**_with_tuples(host)) for host in data["hosts"])
        return cls(**{**_with_tuples(data), "hosts": hosts})


def _with_tuples(data: Any) -> Any:
    """What JSON holds, with tuples in place of its lists."""
    if isinstance(data, dict):
        return {name: _with_tuples(value) for name, value in data.items()}
    return tuple(map(_with_tuples, data)) if isinstance(data, list | tuple) else data
