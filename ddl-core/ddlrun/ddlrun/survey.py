"""The hosts of a job: which they are, what they are, and which of them can take part.

It can be done again, without hosts that are gone.
"""

import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from . import remote_shell
from .checks import diagnostics, gpu_checks, preflight, remote_probe
from .checks.inventory import HostInventory
from .command_line.options import Options
from .command_line.rank_range import RankRange
from .console import Console, clear_progress, show_progress
from .environment import Environment, current
from .errors import SHOWN, Code, Failures, LaunchError
from .hosts import schedulers, this_machine
from .hosts.host_list import Host, HostList
from .hosts.schedulers import slurm
from .placement import gpu_use, rank_range, slots
from .placement.gpu_use import GpuUse
from .rank_variables import OF_OPEN_MPI, mpi_settings
from .report import host_report
from .ssh import Ssh
from .start import launchers


@dataclass(frozen=True)
class Survey:
    """The hosts and what was found on them.

    Attributes:
        environment: The one that every host has.
        hosts: Those that take part.
        local: Names of this machine among them.
        facts: Of the hosts that were looked at.
        named: All hosts that the user or the scheduler named, also those that cannot take part.
    """

    environment: Environment
    hosts: HostList
    local: frozenset[str]
    facts: Mapping[str, HostInventory]
    named: tuple[Host, ...] = ()

    @property
    def missing(self) -> tuple[Host, ...]:
        """Hosts that were named and do not take part."""
        return tuple(host for host in self.named if host not in self.hosts.hosts)


def _environment(options: Options) -> Environment:
    ssh = Ssh(options.ssh_port, options.ssh_identity)
    names = [host.name for host in schedulers.find_hosts(options).hosts]
    return current(remote_shell.choose(ssh, set(names) - this_machine.plain_names()))


def _chosen(hosts: HostList, options: Options) -> HostList:
    """Without those of -exclude, and no more than -nnodes. Raises LaunchError where that cannot be."""
    left_out = {name.strip() for name in (options.exclude or "").split(",") if name.strip()}
    names = [host.name for host in hosts.hosts]
    if strangers := sorted(left_out - set(names)):
        raise LaunchError(
            Code.USAGE,
            f"{strangers[0]} is none of the hosts ({', '.join(names)})",
            "in -exclude",
            "write a host as it stands in the list of hosts",
            exit_code=2,
        )
    remaining = tuple(host for host in hosts.hosts if host.name not in left_out)
    limit = options.nnodes or len(remaining)
    if len(remaining) < max(limit, 1):
        raise LaunchError(
            Code.USAGE,
            f"{len(remaining)} hosts are left of {hosts.origin}, and {max(limit, 1)} are wanted",
            "in -nnodes" if options.nnodes else "in -exclude",
            "take fewer, or name more hosts",
            exit_code=2,
        )
    return replace(hosts, hosts=remaining[:limit])


def _find_hosts(
    options: Options, console: Console, without: Collection[str] = ()
) -> tuple[HostList, set[str], tuple[Host, ...]]:
    """The hosts to look at, names of this machine, and all hosts that were named."""
    hosts = schedulers.find_hosts(options)
    if not options.rankfile:
        hosts = _chosen(hosts, options)
    launchers.choose(options.launcher).check(hosts)
    local = this_machine.local_names([host.name for host in hosts.hosts]) | {"localhost"}
    named = hosts.hosts
    if not options.rankfile:  # a rankfile's names go to mpirun as they are
        hosts = this_machine.unite_local(hosts, local)
        named = hosts.hosts
        hosts = replace(hosts, hosts=tuple(host for host in hosts.hosts if host.name not in without))
    console.tell(f"hosts from {hosts.origin}: {', '.join(host.name for host in hosts.hosts)}")
    return hosts, local, named


def _look(
    options: Options, console: Console, without: Collection[str] = ()
) -> tuple[Survey, preflight.Report]:
    """Look at all hosts. The survey has those that can take part."""
    environment = _environment(options)
    start_time = time.monotonic()
    hosts, local, named = _find_hosts(options, console, without)
    # A resolver that does not answer takes its time from that of hosts that do not.
    seconds_left = preflight.HOST_SECONDS - (time.monotonic() - start_time)
    inspection = preflight.Inspection(
        remote_probe.ProbeSettings(
            library_path=_library_path(options),
            visible=remote_probe.visible_gpus(options.x, os.environ),
            folder=os.path.abspath(options.wdir) if options.wdir else None,
        ),
        # A step is of one component of a heterogeneous job.
        by_step=hosts.origin.startswith("Slurm")
        and slurm.components(os.environ) == 1
        and environment.image is None
        and shutil.which("srun") is not None,
        seconds=max(preflight.LEAST_HOST_SECONDS, seconds_left),
        heard=_Counter(len(hosts.hosts)),
    )
    report = preflight.look_at(hosts, local, environment, console.log, inspection)
    clear_progress()
    use = gpu_use.of(options, environment)
    gpu_use.settle(report, use)
    for reason in report.failed.values():
        console.log(str(reason))
    if options.interface:
        report.failed.update(_without_interface(options.interface, report.facts, local))
    able = {name: inventory for name, inventory in report.facts.items() if name not in report.failed}
    for text in diagnostics.differences(able):
        console.warn(Code.HARDWARE, text)
    for text in diagnostics.shortages(able):
        console.warn(Code.SHORTAGE, text)
    for code, text in gpu_checks.warnings(able, use.needed) if use is not GpuUse.NONE else ():
        console.warn(code, text)
    return Survey(environment, hosts, frozenset(local), able, named), report


def _without_interface(
    interface: str, facts: Mapping[str, HostInventory], local: Collection[str]
) -> dict[str, LaunchError]:
    """Hosts that lack the network interface of -interface."""
    failed = {}
    for name, inventory in facts.items():
        names = {network.interface for network in inventory.networks}
        if name in local:
            names |= {local_name for _, local_name in socket.if_nameindex()}
        if names and interface not in names:
            failed[name] = LaunchError(
                Code.USAGE,
                f"there is no network interface {interface}, but {', '.join(sorted(names))}",
                f"host {name}",
                "name another one by -interface, or none",
                exit_code=2,
            )
    return failed


class _Counter:
    """Shows how many hosts have been looked at."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._lock = total, set[str](), threading.Lock()
        show_progress(f"[DDL] checking {total} hosts")

    def __call__(self, host: str) -> None:
        with self._lock:
            self._done.add(host)
            # ddlrun's own machine is looked at too, also where it takes no part
            show_progress(f"[DDL] checked {min(len(self._done), self._total)} of {self._total} hosts")


def _library_path(options: Options) -> str | None:
    """The LD_LIBRARY_PATH that all ranks will get; None: none."""
    for text in reversed(options.x):
        name, equals, value = text.partition("=")
        if name == "LD_LIBRARY_PATH" and equals:
            return value
    return os.environ.get("LD_LIBRARY_PATH")


def survey_hosts(options: Options, console: Console, without: Collection[str] = ()) -> Survey:
    """Find the hosts and look at them, without some that are known to be gone. Raises LaunchError where one
    cannot take part: Failures, which names these hosts.
    """
    if options.skip_checks or options.rankfile:
        environment = _environment(options)
        hosts, local, named = _find_hosts(options, console, without)
        inventory = preflight.local_facts(environment, run=False)
        inventory = gpu_use.as_used(inventory, gpu_use.of(options, environment))
        facts = {host.name: inventory for host in hosts.hosts if host.name in local}
        return Survey(environment, hosts, frozenset(local), facts, named)
    if options.program:
        _check_program(options, _environment(options).path())
    survey, report = _look(options, console, without)
    table = _table(survey, report)
    if report.failed:
        if len(report.failed) > SHOWN:
            # a thousand lines would hide the reasons below them
            console.log(table)
            table = table.partition("\n")[0]
        console.say(table)
        if not isinstance(options.np, RankRange):
            raise Failures(report.failed)
        return _without_failed(survey, report.failed, options, options.np, console)
    console.tell(table)
    return survey


def _without_failed(
    survey: Survey, failed: Mapping[str, LaunchError], options: Options, np: RankRange, console: Console
) -> Survey:
    """The survey of the hosts that can take part, where these have room for the least number of ranks."""
    remaining = tuple(host for host in survey.hosts.hosts if host.name not in failed)
    reduced = replace(survey, hosts=replace(survey.hosts, hosts=remaining))
    available_slots = rank_range.room(reduced.hosts, reduced.facts, options.accelerators)
    if available_slots < np.least:
        raise LaunchError(
            Code.SLOTS,
            f"at least {np.least} ranks asked for, {available_slots} slots on the {len(remaining)} hosts "
            "that can take part",
            f"in -np {np}",
            f"lower its minimum, or repair these: {Failures(failed)}",
        )
    console.warn(Code.SLOTS, f"without {', '.join(failed)}: {Failures(failed)}")
    return reduced


def _table(survey: Survey, report: preflight.Report) -> str:
    names = [host.name for host in survey.hosts.hosts]
    return host_report.as_text(names, report.facts, report.failed, report.seconds)


def check(options: Options, console: Console) -> int:
    """Look at the hosts, print what was found, start nothing; the exit code: 1 where a host cannot take
    part.
    """
    survey, report = _look(options, console)
    if not report.failed:
        np = rank_range.fitting(options.np, survey.hosts, survey.facts, options.accelerators)
        placed = slots.place(survey.hosts, survey.facts, np, options.accelerators, options.cores)
        report.failed.update(diagnostics.room(placed.counts, survey.facts))
        if gpu_use.of(options, survey.environment).needed:
            report.failed.update(gpu_checks.crowded(placed.counts, survey.facts))
    settings = mpi_settings(os.environ)
    if options.json:
        names = [host.name for host in survey.hosts.hosts]
        data = {
            "origin": survey.hosts.origin,
            "seconds": round(report.seconds, 3),
            "mpi_settings": settings,
            "hosts": host_report.as_data(names, report.facts, report.failed),
        }
        print(json.dumps(data, indent=1))
    else:
        print(_table(survey, report), flush=True)
        if settings:
            print(f"{OF_OPEN_MPI}, which all ranks get: {', '.join(settings)}", flush=True)
    if report.failed:
        raise Failures(report.failed)
    return 0


def _check_program(options: Options, path: str) -> None:
    name = options.program[0]
    # A path is meant from where the ranks start.
    place = os.path.join(options.wdir, name) if options.wdir and os.sep in name else name
    if shutil.which(place, path=path) is None:
        remedy = "give the program's path, or install it in the environment"
        if Path(place).is_file():
            remedy = f"start a Python file by `python {name}`; make any other executable: `chmod +x {name}`"
        raise LaunchError(
            Code.PROGRAM, f"the program {name!r} was not found", "on PATH and as a path", remedy
        )
