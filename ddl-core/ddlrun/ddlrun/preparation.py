"""What a job needs for its start: the ranks' places, DDL_OPTIONS, files, the launcher's line and environment.

It can be done again, with fewer hosts.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from . import networks, output_collector
from .checks import diagnostics, gpu_checks
from .command_line.options import Options, usage
from .command_line.rank_range import RankRange
from .console import Console
from .errors import Code, Failures, LaunchError
from .hosts.schedulers import slurm_switches
from .job import Job, Restart
from .placement import gpu_use, rank_range, slots
from .placement import tiers as tier_options
from .placement.slots import Placement
from .placement.tiers import Tiers
from .report.flight_record.fetch import VARIABLE, folder_on_hosts
from .runfolder import RunFolder
from .start import (
    command,
    gpu_environment,
    launchers,
    rank_start,
    rendezvous,
    standard_input,
    stdin_of_rank_0,
)
from .survey import Survey
from .tasks import plan as task_plan


def prepare(
    options: Options, survey: Survey, folder: RunFolder, console: Console, restart: Restart | None = None
) -> Job:
    """Place the ranks, make their DDL_OPTIONS, the files and the line. Starts nothing."""
    return _Preparation(options, survey, folder, console, restart or Restart()).job()


class _Preparation:
    def __init__(
        self, options: Options, survey: Survey, folder: RunFolder, console: Console, restart: Restart
    ) -> None:
        self._survey, self._folder, self._console, self._restart = survey, folder, console, restart
        self._use = gpu_use.of(options, survey.environment)
        self._np = options.np if isinstance(options.np, RankRange) else None
        # What was said about all hosts does not count for fewer.
        self._options = without_groups(options) if self._np and survey.missing else options
        self._launcher = launchers.choose(options.launcher)
        self._within = f"restart-{restart.count}/" if restart.count else ""

    def job(self) -> Job:
        placed = self._place()
        self._check(placed)
        options = self._options
        tiers = tier_options.tiers(len(placed.counts), options.nodes, options.racks, options.aisles)
        ddl_options = None
        if not options.no_ddloptions:
            ddl_options = _ddl_options(options, self._survey, placed, tiers, self._console)
        self._tell_binding(placed)
        records = _records_folder(options, self._folder, self._restart)
        start = launchers.Start(
            self._survey.environment,
            options,
            placed,
            self._survey.facts,
            self._folder.path / self._within,
            self._rank_variables(placed, ddl_options, records),
            remote=any(name not in self._survey.local for name in placed.counts),
            stdin_is_tty=standard_input.is_terminal(),
        )
        self._write_placement(placed)
        job = Job(
            survey=self._survey,
            placed=placed,
            tiers=tiers,
            line=self._launcher.line(start),
            variables=self._launcher.variables(start),
            folder=start.folder,
            restart=self._restart,
            launcher=self._launcher,
            records=records,
            np=self._np,
            tasks=task_plan.tasks(options, placed),
        )
        self._folder.write(f"{self._within}plan.json", json.dumps(job.plan(), indent=1) + "\n")
        return job

    def _place(self) -> Placement:
        options, hosts, facts = self._options, self._survey.hosts, self._survey.facts
        np = rank_range.fitting(options.np, hosts, facts, options.accelerators)
        placed = slots.place(hosts, facts, np, options.accelerators, options.cores)
        if self._np and len(placed.slots) < self._np.most:
            self._console.inform(f"[DDL] -np {self._np}: {len(placed.slots)} ranks fit")
        return placed

    def _check(self, placed: Placement) -> None:
        """Raises Failures where hosts have no room for their ranks."""
        facts = self._survey.facts
        if not self._options.skip_checks:
            failed = diagnostics.room(placed.counts, facts)
            if self._use.needed:
                failed |= gpu_checks.crowded(placed.counts, facts)
            if failed:
                raise Failures(failed)
        if text := gpu_checks.sharing(placed.counts, facts):
            self._console.warn(Code.SHARED_GPUS, text)

    def _tell_binding(self, placed: Placement) -> None:
        if not placed.reason or self._options.rankfile:
            return
        text = f"ranks are not bound: {placed.reason}"
        if self._launcher.binds and not placed.oversubscribed:
            self._console.tell(f"{self._launcher.name} binds the ranks: {placed.reason}")
        elif placed.oversubscribed:
            self._console.tell(text)
        else:
            self._console.warn(Code.UNBOUND, text)

    def _rank_variables(self, placed: Placement, ddl_options: str | None, records: Path) -> dict[str, str]:
        options, facts, launcher = self._options, self._survey.facts, self._launcher
        variables = command.job_environment(self._survey.environment, options, ddl_options, self._folder.job)
        if ddl_options is not None and ":" in ddl_options.partition(" -")[0]:
            # DDL groups hosts in this order, not in that of their names.
            order = [facts[name].name if name in facts else name for name in placed.counts]
            variables.setdefault("DDL_HOST_ORDER", ",".join(order))
        if standard_input.is_piped():
            variables[stdin_of_rank_0.VARIABLE] = "named when it starts"
        shared = rendezvous.variables(
            placed,
            facts,
            f"{self._folder.job}.{self._restart.count}",
            unbound=not (placed.bound or options.rankfile or launcher.binds),
            placement_known=not options.maps_itself,
        )
        _require_size(variables.get("WORLD_SIZE"), len(placed.slots))
        variables = shared | variables  # what -x says counts
        variables |= gpu_environment.variables(placed, facts, options, launcher.name, self._use)
        variables |= task_plan.variables(options, placed)
        for text in gpu_environment.in_words(placed, variables):
            self._console.tell(text)
        variables[VARIABLE] = str(records)
        variables |= _restart_variables(options, self._restart)
        variables |= self._network_variables(placed, variables)
        if launcher.name == "mpirun" and any(name not in self._survey.local for name in placed.counts):
            variables["DDLRUN_IS_REMOTE"] = "1"
        if launcher.name == "mpirun":
            variables[output_collector.OUTPUT_VARIABLE] = "named when it starts"
        return variables | {rank_start.VARIABLE: command.handed_on(variables, options)}

    def _network_variables(self, placed: Placement, around: Mapping[str, str]) -> dict[str, str]:
        """Which networks MPI and the frameworks' libraries use, as far as nobody has said."""
        facts = self._survey.facts
        hosts = {name: facts[name].networks for name in placed.counts if name in facts}
        if self._options.interface:
            return {}
        if len(placed.counts) < 2:
            return networks.within_host(around, self._options)
        if skipped := networks.left_out(hosts):
            listed = ", ".join(f"{entry.network} of {entry.interface}" for entry in skipped)
            self._console.tell(f"networks that do not lead to other hosts are left out: {listed}")
        interfaces = [networks.leading_interface(hosts.get(name, ())) or "" for name in placed.counts]
        values = networks.variables(hosts, around, self._options.launcher_words())
        if all(interfaces):
            values["DDLRUN_INTERFACES"] = ",".join(interfaces)
        return values

    def _write_placement(self, placed: Placement) -> None:
        self._folder.write(f"{self._within}HOSTFILE", slots.hostfile_text(placed))
        if placed.bound and not self._options.rankfile:
            self._folder.write(f"{self._within}RANKFILE", slots.rankfile_text(placed))


def _require_size(text: str | None, ranks: int) -> None:
    """Raises LaunchError where -x WORLD_SIZE says something else than what the job has."""
    if text not in (None, str(ranks)):
        raise usage(
            f"-x WORLD_SIZE={text}: the job has {ranks} ranks",
            "leave it out; -np says how many ranks there are",
        )


def without_groups(options: Options) -> Options:
    """The options for fewer hosts than those that -nodes, -racks, -aisles and -mode describe."""
    letter = tier_options.letter(options, os.environ.get("DDL_OPTIONS", ""))
    return replace(options, nodes=None, racks=None, aisles=None, mode=letter)


def _records_folder(options: Options, folder: RunFolder, restart: Restart) -> Path:
    """Where the ranks write their flight records: in the user's shared folder, or on every host."""
    base = options.flight_record or os.environ.get(VARIABLE)
    name = f"restart-{restart.count}" if restart.count else "start"
    if not base:
        return Path(folder_on_hosts(f"{folder.job}.{name}"))
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
