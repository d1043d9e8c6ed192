"""A job before it runs: its hosts, what they are, who sits where, the mpirun line, the environment.

survey_hosts() looks at the hosts, prepare() makes the rest of what it found. Both can be done again, with
fewer hosts.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

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
from .hosts.schedulers import slurm_switches
from .placement import gpu_use, rank_range, slots
from .placement import tiers as tier_options
from .placement.gpu_use import GpuUse
from .placement.slots import Placement, Slot
from .placement.tiers import Tiers
from .report import host_report
from .report.flight_record.collect import VARIABLE, folder_on_hosts
from .runfolder import RunFolder
from .ssh import Ssh
from .start import command, gpu_environment, launchers, rendezvous, standard_input, stdin_of_rank_0
from .start.launchers import Launcher
from .tasks import plan as task_plan
from .tasks.plan import Task


@dataclass(frozen=True)
class Survey:
    """The hosts and what was found on them. local: names of this machine among them. facts: of the hosts that
    were looked at. named: all hosts that the user or the scheduler named, also those that cannot take part.
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


@dataclass(frozen=True)
class Restart:
    """Which start of the job this is, from 0, and what ended the one before. failures: how many of the starts
    were for one, which -max-restarts limits.
    """

    count: int = 0
    reason: str = ""
    failures: int = 0


@dataclass(frozen=True)
class Job:
    """Everything that is needed to start. variables: the environment of mpirun. line: its words. records:
    where the ranks write their flight records. tasks: of TensorFlow's cluster.
    """

    survey: Survey
    placed: Placement
    tiers: Tiers
    variables: Mapping[str, str]
    line: list[str]
    folder: Path
    restart: Restart
    launcher: Launcher
    records: Path
    np: RankRange | None = None
    tasks: tuple[Task, ...] = ()

    @property
    def remote_hosts(self) -> list[str]:
        """Its hosts besides this machine, in the order of their ranks."""
        return [name for name in self.placed.counts if name not in self.survey.local]

    def plan(self) -> dict[str, Any]:
        """The job as plain data, for people and programs to read."""
        requested = {"np": asdict(self.np)} if self.np else {}
        return {
            **requested,
            "hosts": [
                {"name": name, "ranks": count, "facts": asdict(self.survey.facts[name])}
                if name in self.survey.facts
                else {"name": name, "ranks": count}
                for name, count in self.placed.counts.items()
            ],
            "origin": self.survey.hosts.origin,
            "ranks": [
                {"rank": slot.rank, "host": slot.host, "cores": list(slot.cores), **_gpu_of(slot)}
                for slot in self.placed.slots
            ],
            **task_plan.as_data(self.tasks),
            "bound": self.placed.bound,
            "tiers": {"nodes": self.tiers.nodes, "racks": self.tiers.racks, "aisles": self.tiers.aisles},
            "ddl_options": self.variables.get("DDL_OPTIONS"),
            "command": self.line,
            "folder": str(self.folder),
        }


def _gpu_of(slot: Slot) -> dict[str, Any]:
    if slot.gpu is None:
        return {}
    gpu = slot.gpu
    return {"gpu": {"bus": gpu.bus, "uuid": gpu.uuid, "island": gpu.island, "nics": list(gpu.nics)}}


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
    local = this_machine.local_names([host.name for host in hosts.hosts])
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
    report = preflight.look_at(
        hosts,
        local,
        environment,
        console.log,
        _library_path(options),
        _Counter(len(hosts.hosts)),
        by_step=hosts.origin.startswith("Slurm")
        and environment.image is None
        and shutil.which("srun") is not None,
        seconds=max(preflight.LEAST_HOST_SECONDS, seconds_left),
        visible=remote_probe.visible_gpus(options.x, os.environ),
    )
    clear_progress()
    use = gpu_use.of(options, environment)
    gpu_use.settle(report, use)
    for reason in report.failed.values():
        console.log(str(reason))
    able = {name: inventory for name, inventory in report.facts.items() if name not in report.failed}
    for text in diagnostics.differences(able):
        console.warn(Code.HARDWARE, text)
    for text in diagnostics.shortages(able):
        console.warn(Code.SHORTAGE, text)
    for code, text in gpu_checks.warnings(able, use.needed) if use is not GpuUse.NONE else ():
        console.warn(code, text)
    return Survey(environment, hosts, frozenset(local), able, named), report


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
    if options.json:
        names = [host.name for host in survey.hosts.hosts]
        data = {
            "origin": survey.hosts.origin,
            "seconds": round(report.seconds, 3),
            "hosts": host_report.as_data(names, report.facts, report.failed),
        }
        print(json.dumps(data, indent=1))
    else:
        print(_table(survey, report), flush=True)
    if report.failed:
        raise Failures(report.failed)
    return 0


def _check_program(options: Options, path: str) -> None:
    name = options.program[0]
    if shutil.which(name, path=path) is None:
        remedy = "give the program's path, or install it in the environment"
        if Path(name).is_file():
            remedy = f"start a Python file by `python {name}`; make any other executable: `chmod +x {name}`"
        raise LaunchError(
            Code.PROGRAM, f"the program {name!r} was not found", "on PATH and as a path", remedy
        )


def prepare(
    options: Options, survey: Survey, folder: RunFolder, console: Console, restart: Restart | None = None
) -> Job:
    """Place the ranks, make their DDL_OPTIONS, the files and the line. Starts nothing."""
    restart = restart or Restart()
    use = gpu_use.of(options, survey.environment)
    requested_range = options.np if isinstance(options.np, RankRange) else None
    np = rank_range.fitting(options.np, survey.hosts, survey.facts, options.accelerators)
    placed = slots.place(survey.hosts, survey.facts, np, options.accelerators, options.cores)
    if requested_range and len(placed.slots) < requested_range.most:
        console.inform(f"[DDL] -np {requested_range}: {len(placed.slots)} ranks fit")
    if requested_range and survey.missing:
        # What was said about all hosts does not count for fewer.
        options = without_groups(options)
    if not options.skip_checks:
        failed = diagnostics.room(placed.counts, survey.facts)
        if use.needed:
            failed |= gpu_checks.crowded(placed.counts, survey.facts)
        if failed:
            raise Failures(failed)
    if text := gpu_checks.sharing(placed.counts, survey.facts):
        console.warn(Code.SHARED_GPUS, text)
    tiers = tier_options.tiers(len(placed.counts), options.nodes, options.racks, options.aisles)
    ddl_options = None if options.no_ddloptions else _ddl_options(options, survey, placed, tiers, console)
    launcher = launchers.choose(options.launcher)
    if placed.reason and not options.rankfile:
        text = f"ranks are not bound: {placed.reason}"
        if launcher.binds and not placed.oversubscribed:
            console.tell(f"{launcher.name} binds the ranks: {placed.reason}")
        elif placed.oversubscribed:
            console.tell(text)
        else:
            console.warn(Code.UNBOUND, text)
    variables = command.job_environment(survey.environment, options, ddl_options, folder.job)
    if ddl_options is not None and ":" in ddl_options.partition(" -")[0]:
        # DDL groups hosts in this order, not in that of their names.
        order = [survey.facts[name].name if name in survey.facts else name for name in placed.counts]
        variables.setdefault("DDL_HOST_ORDER", ",".join(order))
    unbound = not (placed.bound or options.rankfile or launcher.binds)
    start_name = f"{folder.job}.{restart.count}"
    # A rankfile of the user's own says which rank is where, and nobody else knows.
    placement_known = not options.rankfile
    if standard_input.is_piped():
        variables[stdin_of_rank_0.VARIABLE] = "named when it starts"
    variables |= rendezvous.variables(
        placed, survey.facts, start_name, unbound=unbound, placement_known=placement_known
    )
    variables |= gpu_environment.variables(placed, survey.facts, options, launcher.name, use)
    variables |= task_plan.variables(options, placed)
    for text in gpu_environment.in_words(placed, variables):
        console.tell(text)
    records = _records_folder(options, folder, restart)
    variables[VARIABLE] = str(records)
    variables |= _restart_variables(options, restart)
    within = f"restart-{restart.count}/" if restart.count else ""
    folder.write(f"{within}HOSTFILE", slots.hostfile_text(placed))
    if placed.bound and not options.rankfile:
        folder.write(f"{within}RANKFILE", slots.rankfile_text(placed))
    start = launchers.Start(
        survey.environment,
        options,
        placed,
        survey.facts,
        folder.path / within,
        variables,
        remote=any(name not in survey.local for name in placed.counts),
        stdin_is_tty=standard_input.is_terminal(),
    )
    line = launcher.line(start)
    launch_environment = launcher.variables(start)
    tasks = task_plan.tasks(options, placed)
    place = folder.path / within
    job = Job(
        survey,
        placed,
        tiers,
        launch_environment,
        line,
        place,
        restart,
        launcher,
        records,
        requested_range,
        tasks,
    )
    folder.write(f"{within}plan.json", json.dumps(job.plan(), indent=1) + "\n")
    return job


def without_groups(options: Options) -> Options:
    """The options for fewer hosts than those that -nodes, -racks, -aisles and -mode describe."""
    letter = tier_options.letter(options, os.environ.get("DDL_OPTIONS", ""))
    return replace(options, nodes=None, racks=None, aisles=None, mode=letter)


def _records_folder(options: Options, folder: RunFolder, restart: Restart) -> Path:
    """Where the ranks write their flight records: in the user's shared folder, or on every host."""
    base = options.flight_record or os.environ.get(VARIABLE)
    name = f"restart-{restart.count}" if restart.count else "start"
    if not base:
        return folder_on_hosts(f"{folder.job}.{name}")
    try:
        shared = Path(base).absolute() / folder.job
        shared.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchError(
            Code.FOLDER,
            f"the folder {base} cannot be made: {error.strerror}",
            "in -flight-record" if options.flight_record else f"in {VARIABLE}",
            "name a folder on a file system that all hosts share and that you may write to",
        ) from error
    return shared / name


def _restart_variables(options: Options, restart: Restart) -> dict[str, str]:
    """What the script learns of restarts, through its environment; ddl.restart_count() and so on read it."""
    variables = {"DDL_RESTART_COUNT": str(restart.count)}
    if restart.count or "DDL_RESTART_REASON" in os.environ:
        variables["DDL_RESTART_REASON"] = restart.reason
    if options.checkpoint_dir:
        folder = Path(options.checkpoint_dir).absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LaunchError(
                Code.FOLDER,
                f"the folder {folder} cannot be made: {error.strerror}",
                "in -checkpoint-dir",
                "name a folder on a file system that all hosts share and that you may write to",
            ) from error
        variables["DDL_CHECKPOINT_DIR"] = str(folder)
    return variables


def _ddl_options(options: Options, survey: Survey, placed: Placement, tiers: Tiers, console: Console) -> str:
    surrounding = os.environ.get("DDL_OPTIONS", "")
    switches = None
    if not tier_options.is_described(options, surrounding):
        switches = _switches(survey, placed, console)
    ddl_options, warnings = tier_options.ddl_options(
        options,
        surrounding,
        list(placed.counts.values()),
        tiers,
        scheduled=switches is None and "SLURM_TOPOLOGY_ADDR" in os.environ,
        switches=switches,
    )
    for text in warnings:
        console.warn(Code.OPTIONS_REPLACED, text)
    if options.verbose and "-dbg_level" not in ddl_options:
        ddl_options += " -dbg_level 1"
    return ddl_options


def _switches(survey: Survey, placed: Placement, console: Console) -> str | None:
    """What Slurm tells of the switches above the job's hosts, for DDL."""
    if not survey.hosts.origin.startswith("Slurm") or len(placed.counts) < 2:
        return None
    own_names = {name: survey.facts[name].name if name in survey.facts else name for name in placed.counts}
    topology, reason = slurm_switches.switches(own_names, os.environ)
    console.log(f"switches: {topology or reason}")
    return topology
