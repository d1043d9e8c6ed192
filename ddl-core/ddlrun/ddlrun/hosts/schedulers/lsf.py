"""Hosts of an LSF job, from its environment."""

import shutil
from collections.abc import Mapping

from ...errors import Code, LaunchError
from .. import hostfile
from ..host_list import Host, HostList, check_name, check_slots, merged


def has_launch_nodes(environment: Mapping[str, str]) -> bool:
    """Whether LSF puts scripts on nodes of their own here: with IBM's Cluster System Management, whose jobs
    have an
    allocation and are started by jsrun.
    """
    return (
        "CSM_ALLOCATION_ID" in environment
        or shutil.which("jsrun", path=environment.get("PATH", "")) is not None
    )


def _without_launch_node(hosts: tuple[Host, ...]) -> tuple[Host, ...]:
    """LSF lists the launch node first, with a single slot; no rank belongs there."""
    if len(hosts) > 1 and hosts[0].slots in (1, None) and all((host.slots or 1) > 1 for host in hosts[1:]):
        return hosts[1:]
    return hosts


def hosts(environment: Mapping[str, str]) -> HostList | None:
    """Hosts of the surrounding job; a host's slots are how often LSF names it."""
    if not environment.get("LSB_JOBID"):
        return None
    origin = f"LSF job {environment['LSB_JOBID']}"
    pairs = environment.get("LSB_MCPU_HOSTS", "").split()
    if environment.get("LSB_DJOB_HOSTFILE"):
        name = environment["LSB_DJOB_HOSTFILE"]
        members = hostfile.parse_hostfile(hostfile.read(name, "hostfile (LSB_DJOB_HOSTFILE)"), name)
    elif pairs:
        where = f"in LSB_MCPU_HOSTS={environment['LSB_MCPU_HOSTS']!r}"
        if len(pairs) % 2:
            raise LaunchError(
                Code.HOSTS, "a host without its slots", where, "name the hosts with -H or -hostfile"
            )
        members = merged(
            Host(check_name(name, where), check_slots(slots, where))
            for name, slots in zip(pairs[::2], pairs[1::2], strict=True)
        )
    elif environment.get("LSB_HOSTS"):
        members = merged(
            Host(check_name(name, "in LSB_HOSTS"), 1) for name in environment["LSB_HOSTS"].split()
        )
    else:
        return None
    if has_launch_nodes(environment):
        members = _without_launch_node(members)
    return HostList(members, origin, explicit_slots=False)
