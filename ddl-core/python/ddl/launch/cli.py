"""The program: the steps of a start in their order, and what is told about them."""

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import Code, Failures, LaunchError
from .options import Options, help_text, parse


def main(arguments: list[str]) -> int:
    """Run ddlrun; its exit code: the job's, 2 for a wrong command line, 124 for a time limit, 128+n for a
    signal.
    """
    try:
        options = parse(arguments)
        if options.help:
            print(help_text(), end="")
            return 0
        if options.version:
            return _print_versions()
        _refuse_nesting(os.environ)
        return _launch(options)
    except LaunchError as error:
        _say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _say(
            f"[ERROR DDL-2-{int(Code.INTERRUPTED)}] interrupted; before the start of the job; start it again"
        )
        return 130
    except BrokenPipeError:
        return 141


def _say(text: str) -> None:
    try:
        sys.stdout.flush()
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass


def _warn(code: Code, text: str) -> None:
    _say(f"[WARN DDL-2-{int(code)}] {text}")


def _print_versions() -> int:
    from . import probe
    from .environment import current

    environment = current()
    here = probe.facts(str(environment.prefix), str(environment.package))
    print(f"DDL {here['ddl']}\n{here['mpi']}\nPython {here['python']}\nenvironment {environment.prefix}")
    return 0


def _refuse_nesting(environment: Mapping[str, str]) -> None:
    """A job inside a rank would start as many jobs as there are ranks, all on the same cores."""
    rank = environment.get("OMPI_COMM_WORLD_RANK")
    step = environment.get("SLURM_STEP_NUM_TASKS")
    if rank is None and step != "1":  # an interactive `srun --pty` of one task is a place to start jobs from
        rank = environment.get("PMIX_RANK") or environment.get("PMI_RANK")
    if rank is None and step not in (None, "1") and environment.get("SLURM_STEP_ID", "").isdecimal():
        rank = environment.get("SLURM_PROCID")
    if rank is not None:
        raise LaunchError(
            Code.NESTED,
            f"ddlrun was started inside rank {rank} of a running job",
            "in the environment",
            "start ddlrun once, outside of mpirun, srun and ddlrun; inside a job start the program itself",
        )


def _check_program(options: Options, path: str) -> None:
    name = options.program[0]
    if shutil.which(name, path=path) is None:
        remedy = "give the program's path, or install it in the environment"
        if Path(name).is_file():
            remedy = f"start a Python file by `python {name}`; make any other executable: `chmod +x {name}`"
        raise LaunchError(
            Code.PROGRAM, f"the program {name!r} was not found", "on PATH and as a path", remedy
        )


def _launch(options: Options) -> int:
    from .runfolder import RunFolder

    with RunFolder() as folder:
        folder.log(f"ddlrun {' '.join(sys.argv[1:])!r} in {os.getcwd()!r}")
        try:
            return _start(options, folder)
        except LaunchError as error:
            folder.log(str(error))
            _say(f"{error}\nThe log is {folder.log_path}")
            return error.exit_code


def _start(options: Options, folder: Any) -> int:
    from . import command, placement, preflight, running, sources, topology
    from .environment import current
    from .failure import explain

    def tell(text: str) -> None:
        folder.log(text)
        if options.verbose:
            _say(f"[DDL] {text}")

    began = time.monotonic()
    environment = current()
    hosts = sources.find_hosts(options)
    local = preflight.local_names([host.name for host in hosts.hosts])
    if not options.rankfile:  # a rankfile's names go to mpirun as they are
        hosts = preflight.unite_local(hosts, local)
    tell(f"hosts from {hosts.origin}: {', '.join(host.name for host in hosts.hosts)}")
    here = preflight.local_facts(environment)
    if options.skip_checks or options.rankfile:
        facts = {host.name: here for host in hosts.hosts if host.name in local}
    else:
        _check_program(options, environment.path())
        facts = preflight.look_at(hosts, local, environment, here, folder.log)
        for text in preflight.differences(facts):
            _warn(Code.HARDWARE, text)
    tell(
        f"checked after {time.monotonic() - began:.2f} s: DDL {here.ddl}, {here.mpi}, {here.core_count} cores"
    )

    placed = placement.place(hosts, facts, options.np, options.accelerators, options.cores)
    counts = placed.counts
    tiers = topology.tiers(len(counts), options.nodes, options.racks, options.aisles)
    ddl_options = None
    if not options.no_ddloptions:
        ddl_options, warnings = topology.ddl_options(
            options,
            os.environ.get("DDL_OPTIONS", ""),
            list(counts.values()),
            tiers,
            scheduled="SLURM_TOPOLOGY_ADDR" in os.environ,
        )
        for text in warnings:
            _warn(Code.OPTIONS_REPLACED, text)
        if options.verbose and "-dbg_level" not in ddl_options:
            ddl_options += " -dbg_level 1"
    if placed.reason and not options.rankfile:
        (tell if placed.crowded else lambda text: _warn(Code.UNBOUND, text))(
            f"ranks are not bound: {placed.reason}"
        )

    variables = command.job_environment(environment, options, ddl_options, placed.crowded, folder.job)
    if ddl_options is not None and ":" in ddl_options.partition(" -")[0]:
        # DDL groups hosts in this order, not in that of their names.
        order = [facts[name].name if name in facts else name for name in counts]
        variables.setdefault("DDL_HOST_ORDER", ",".join(order))
    folder.write("HOSTFILE", placement.hostfile_text(placed))
    if placed.bound and not options.rankfile:
        folder.write("RANKFILE", placement.rankfile_text(placed))
    remote = any(name not in local for name in counts)
    line = command.mpirun_line(
        environment, options, placed, folder.path, variables, remote=remote, typed=running.is_typed()
    )
    plan = {
        "hosts": [{"name": name, "ranks": count} for name, count in counts.items()],
        "origin": hosts.origin,
        "ranks": [{"rank": seat.rank, "host": seat.host, "cores": list(seat.cores)} for seat in placed.seats],
        "bound": placed.bound,
        "tiers": {"nodes": tiers.nodes, "racks": tiers.racks, "aisles": tiers.aisles},
        "ddl_options": variables.get("DDL_OPTIONS"),
        "command": line,
        "folder": str(folder.path),
    }
    folder.write("plan.json", json.dumps(plan, indent=1) + "\n")
    if options.json:
        print(json.dumps(plan, indent=1))
        return 0
    _say(command.shown(line))
    folder.log(command.shown(line))
    if options.dry_run:
        _print_plan(plan)
        return 0

    outcome = running.run(line, variables, options.timeout, folder.log, notes=options.verbose)
    killed = running.end_leftovers(folder.job)
    if killed:
        _warn(
            Code.LEFTOVERS, f"{killed} processes of the job were still running on this host and were killed"
        )
    tell(f"ended after {time.monotonic() - began:.1f} s with code {outcome.code}")
    if options.verbose:
        for note in outcome.notes:
            _say(f"[DDL] {note}")
    if outcome.timed_out:
        raise LaunchError(
            Code.TIMEOUT,
            f"the job took longer than {options.timeout:g} s and was ended",
            "in -timeout",
            "raise the limit, or see where the ranks wait",
            exit_code=124,
        )
    if outcome.signal is not None:
        raise LaunchError(
            Code.INTERRUPTED,
            f"the job was ended by signal {outcome.signal} to ddlrun",
            "on this host",
            "start it again",
            exit_code=128 + outcome.signal,
        )
    if outcome.code or outcome.story.first:
        others = [name for name in counts if name not in local]
        raise explain(outcome.code, outcome.story, outcome.tails, placed, others, str(folder.log_path))
    return 0


def _print_plan(plan: Mapping[str, Any]) -> None:
    tiers = plan["tiers"]
    print(
        f"hosts from {plan['origin']}; "
        f"{tiers['nodes']} nodes x {tiers['racks']} racks x {tiers['aisles']} aisles"
    )
    for host in plan["hosts"]:
        seats = [seat for seat in plan["ranks"] if seat["host"] == host["name"]]
        where = " ".join(f"{seat['rank']}:{','.join(map(str, seat['cores'])) or '-'}" for seat in seats)
        print(f"  {host['name']}: {host['ranks']} ranks (rank:cores) {where}")
    print(f"DDL_OPTIONS={plan['ddl_options'] or ''}")


__all__ = ["Failures", "main"]
