"""Which networks of the hosts MPI must not use: those that do not lead from one host to the others.

Docker, Podman, libvirt and LXC give every host a bridge with the same address. Open MPI takes two hosts that
have such a bridge for neighbours on it, and each would connect to itself. So a network is left out where an
address of it is found on several hosts, and where it belongs to a bridge or a tunnel that is not the way from
a host to the others.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .command_line.options import Options

# Kinds of interfaces; see checks/probe.py.
_VIRTUAL = ("bridge", "tunnel")
#: Open MPI's own, which a list of ours replaces.
_OPEN_MPI_LEAVES_OUT = ("127.0.0.0/8", "sppp")
#: As of NCCL itself.
_NCCL_LEAVES_OUT = ("docker", "lo")
#: Any of these says that the user has chosen.
_CHOICES = tuple(
    f"{name}_if_{how}" for name in ("OMPI_MCA_btl_tcp", "PRTE_MCA_prte") for how in ("include", "exclude")
)


_CHOICE_IN_WORDS = re.compile("(btl_tcp|prte)_if_(in|ex)clude")


@dataclass(frozen=True)
class Network:
    """One address of a host. network: with the length of its prefix, such as 10.1.0.0/16. leads: packets to
    other hosts of the job go this way.
    """

    interface: str
    address: str
    network: str
    kind: str
    leads: bool


def parse(entries: Iterable[Mapping[str, Any]]) -> tuple[Network, ...]:
    """The networks that a probe has found. Raises ValueError where they are not understood."""
    return tuple(
        Network(
            str(entry["interface"])[:15],
            str(ipaddress.ip_address(entry["address"])),
            str(ipaddress.ip_network(entry["network"])),
            str(entry["kind"]),
            bool(entry["leads"]),
        )
        for entry in entries
    )


def left_out(hosts: Mapping[str, Sequence[Network]]) -> list[Network]:
    """The networks that do not lead to other hosts, one entry for each interface that has one."""
    every = [network for networks in hosts.values() for network in networks]
    leading = {network.network for network in every if network.leads}
    times = Counter(network.address for network in every)
    by_interface = {
        (network.interface, network.network): network
        for network in every
        if network.kind != "loopback"
        and network.network not in leading
        and (times[network.address] > 1 or network.kind in _VIRTUAL)
    }
    return [by_interface[key] for key in sorted(by_interface)]


def addresses_left_out(hosts: Mapping[str, Sequence[Network]]) -> list[str]:
    """The same as networks of IPv4, which is what MPI uses; none on a single host."""
    skipped = left_out(hosts) if len(hosts) > 1 else []
    return list(dict.fromkeys(entry.network for entry in skipped if ":" not in entry.network))


def excluding(addresses: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Settings for MPI and its run-time without these networks, where the user has not chosen."""
    if not addresses or any(environment.get(name) for name in _CHOICES):
        return {}
    return {
        "OMPI_MCA_btl_tcp_if_exclude": ",".join([*_OPEN_MPI_LEAVES_OUT, *addresses]),
        "PRTE_MCA_prte_if_exclude": ",".join(addresses),
    }


def within_host(environment: Mapping[str, str], options: Options) -> dict[str, str]:
    """Settings for the ranks of a single host, which need no network: they listen at no port. The user's own
    choice of Open MPI's transports counts.
    """
    chosen = any(name in environment for name in ("OMPI_MCA_btl", "OMPI_MCA_pml")) or options.tcp
    if chosen or any(argument in ("btl", "pml") for argument in options.launcher_words()):
        return {}
    return {"OMPI_MCA_btl": "self,sm"}


def variables(
    hosts: Mapping[str, Sequence[Network]], environment: Mapping[str, str], arguments: Iterable[str] = ()
) -> dict[str, str]:
    """Settings for MPI, its run-time and NCCL, where the user has not chosen. arguments: the user's own for
    mpirun.
    """
    values: dict[str, str] = {}
    if not any(map(_CHOICE_IN_WORDS.search, arguments)):
        values = excluding(addresses_left_out(hosts), environment)
    leading = {entry.interface for networks in hosts.values() for entry in networks if entry.leads}
    names = [entry.interface for entry in left_out(hosts) if entry.interface not in leading]
    if names and not environment.get("NCCL_SOCKET_IFNAME"):
        values["NCCL_SOCKET_IFNAME"] = "^" + ",".join(dict.fromkeys([*_NCCL_LEAVES_OUT, *names]))
    return values


def leading_interface(networks: Sequence[Network]) -> str | None:
    """The one interface by which a host reaches the others; None where there are several, or none known."""
    names = {entry.interface for entry in networks if entry.leads and entry.kind != "loopback"}
    return names.pop() if len(names) == 1 else None
