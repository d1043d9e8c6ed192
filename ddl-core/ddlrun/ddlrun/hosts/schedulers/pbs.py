"""Hosts of a PBS job (PBS Pro, OpenPBS, Torque), from its environment."""

from collections.abc import Mapping

from .. import hostfile
from ..host_list import HostList


def hosts(environment: Mapping[str, str]) -> HostList | None:
    """Hosts of the surrounding job. PBS lists a host once for each of its MPI ranks (`mpiprocs`, Torque's
    `ppn`), in one block or dealt out.
    """
    name = environment.get("PBS_NODEFILE")
    if not name or not environment.get("PBS_JOBID"):
        return None
    members = hostfile.parse_hostfile(hostfile.read(name, "hostfile (PBS_NODEFILE)"), name)
    return HostList(members, f"PBS job {environment['PBS_JOBID']}", explicit_slots=False)
