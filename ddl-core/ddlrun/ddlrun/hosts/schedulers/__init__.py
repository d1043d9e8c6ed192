"""Where the hosts of a job come from: the first of these that has an answer."""

import os
from collections.abc import Mapping

from ...command_line.options import Options
from .. import hostfile
from ..host_list import THIS_MACHINE, Host, HostList, parse_host_option
from . import flux, lsf, pbs, slurm

#: Schedulers in the order in which they are asked; each returns None outside its jobs. Flux comes first: it
#: can run inside a job of another one, and has then some of its hosts.
SCHEDULERS = (flux.hosts, slurm.hosts, lsf.hosts, pbs.hosts)


def find_hosts(options: Options, environment: Mapping[str, str] = os.environ) -> HostList:
    """Hosts of the options, else of the scheduler's job around us, else this machine."""
    if options.host:
        return HostList(parse_host_option(options.host), f"-H {options.host}")
    if options.hostfile:
        text = hostfile.read(options.hostfile, "hostfile")
        return HostList(hostfile.parse_hostfile(text, options.hostfile), f"hostfile {options.hostfile}")
    if options.rankfile:
        text = hostfile.read(options.rankfile, "rankfile")
        return HostList(hostfile.parse_rankfile(text, options.rankfile), f"rankfile {options.rankfile}")
    for scheduler in SCHEDULERS:
        hosts_of_job = scheduler(environment)
        if hosts_of_job:
            return hosts_of_job
    return HostList((Host("localhost"),), THIS_MACHINE)
