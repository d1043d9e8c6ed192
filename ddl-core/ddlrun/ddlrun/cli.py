"""The program: what is asked for, and its exit code."""

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .command_line.options import COMPLETION_VARIABLE, Options, usage
from .errors import Code, LaunchError


def main(arguments: list[str]) -> int:
    """Run ddlrun; its exit code: the job's, 2 for a wrong command line, 124 for a time limit, 128+n for a
    signal.
    """
    _open_missing_streams()
    code = _run(arguments)
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python would try again, and then end with a code of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return code or 141
        _say(
            f"[ERROR DDL-2-{int(Code.FOLDER)}] standard output cannot be written: {error.strerror}; "
            "in what ddlrun's output goes to; make room there, or write it elsewhere"
        )
        return code or 1
    return code


def _run(arguments: list[str]) -> int:
    try:
        _require_click()
        if instruction := os.environ.get(COMPLETION_VARIABLE):
            from .command_line.completion import answer

            return answer(instruction)
        from .command_line.parser import help_text, parse

        _set_home()
        options = parse(arguments)
        if options.help:
            print(help_text(), end="")
            return 0
        if options.completion:
            return _print_completion(options.completion)
        if options.image or options.imagearg:
            options = _by_image(options)
        if options.doctor:
            from .checks.doctor import run as examine

            return examine(options)
        if options.version:
            print(_versions())
            return 0
        if options.read_flight_record:
            from pathlib import Path

            from .report.flight_record.collect import show

            return show(Path(options.read_flight_record), options.json)
        if options.predicting:
            from .report.simulate import run

            return run(options)
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


def _open_missing_streams() -> None:
    """Standard streams that are closed are /dev/null; else files that are opened later would take their
    numbers, as bash's of the script bin/ddlrun has done already.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None or (number and not _is_writable(number)):
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def _is_writable(number: int) -> bool:
    import fcntl

    try:
        return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:
        return False


def _set_home() -> None:
    """mpirun does not start where HOME is not set."""
    import pwd

    if "HOME" not in os.environ:
        try:
            os.environ["HOME"] = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:  # a user that a container does not know
            os.environ["HOME"] = "/"


def _require_click() -> None:
    """Raises LaunchError where what reads the command line is missing or broken."""
    try:
        import click  # noqa: F401
    except ImportError as error:
        raise LaunchError(
            Code.ENVIRONMENT,
            f"the Python package click cannot be imported: {error}",
            f"in the environment {sys.prefix}",
            f"install it there: `conda install -p {shlex.quote(sys.prefix)} click`",
        ) from None


def _by_image(options: Options) -> Options:
    """Become ddlrun of the image; where a scheduler starts the ranks, the options by which each enters the
    image.
    """
    from . import image

    if not options.image:
        raise usage("-imagearg without -image", "name the image by -image")
    chosen = image.chosen(str(options.image), options.image_words())
    if options.launcher in (None, "mpirun") or options.doctor or options.version or options.predicting:
        command, variables = image.inside(chosen, options.inside, os.environ)
        sys.stdout.flush()
        os.execve(command[0], command, variables)
    image.require_fit(chosen, _versions())
    return replace(options, program=(*chosen.exec_command(), *options.program))


def _say(text: str) -> None:
    from .console import say

    say(text)


def _print_completion(shell: str) -> int:
    from .command_line.completion import script

    print(script(shell), end="")
    return 0


def _versions() -> str:
    from .checks.preflight import local_facts
    from .environment import current

    environment = current()
    inventory = local_facts(environment, gpus=False)
    return (
        f"DDL {inventory.ddl}\n{inventory.mpi}\nPython {inventory.python}\nenvironment {environment.prefix}"
    )


def _refuse_nesting(environment: Mapping[str, str]) -> None:
    """A job inside a rank would start as many jobs as there are ranks, all on the same cores."""
    rank = environment.get("OMPI_COMM_WORLD_RANK")
    step = environment.get("SLURM_STEP_NUM_TASKS")
    if rank is None and step != "1":  # an interactive `srun --pty` of one task is a place to start jobs from
        rank = environment.get("PMIX_RANK") or environment.get("PMI_RANK")
    if rank is None and step not in (None, "1") and environment.get("SLURM_STEP_ID", "").isdecimal():
        rank = environment.get("SLURM_PROCID")
    if rank is None and "DDLRUN_JOB" in environment and "TF_CONFIG" in environment:
        rank = environment.get(
            "RANK", "of a parameter server"
        )  # a task does not have the launcher's variables
    if rank is not None:
        raise LaunchError(
            Code.NESTED,
            f"ddlrun was started inside rank {rank} of a running job",
            "in the environment",
            "start ddlrun once, outside of mpirun, srun and ddlrun; inside a job start the program itself",
        )


def _current_folder() -> str:
    """Raises LaunchError where it was removed: the ranks could not start in it."""
    try:
        return os.getcwd()
    except OSError as error:
        raise LaunchError(
            Code.FOLDER,
            f"the current folder cannot be found: {error.strerror}",
            "on this host",
            "change to a folder that exists",
        ) from None


def _launch(options: Options) -> int:
    from .console import Console
    from .runfolder import RunFolder

    with RunFolder() as folder:
        console = Console(folder, options.verbose, options.quiet)
        console.log(f"ddlrun {' '.join(sys.argv[1:])!r} in {_current_folder()!r}")
        try:
            return _start(options, folder, console)
        except LaunchError as error:
            console.log(str(error))
            _say(f"{error}\nThe log is {folder.log_path}")
            return error.exit_code


def _start(options: Options, folder: Any, console: Any) -> int:
    from .preparation import prepare
    from .run import restarts
    from .start import command
    from .survey import check, survey_hosts

    if options.check:
        return check(options, console)
    job = prepare(options, survey_hosts(options, console), folder, console)
    if options.shows_topology:
        return _show_topology(job, options)
    if options.json:
        import json

        print(json.dumps(job.plan(), indent=1))
        return 0
    console.inform(command.as_typed(job.line))
    if options.dry_run:
        _print_plan(job.plan())
        return 0
    if job.tasks:
        from .tasks.plan import EXPOSED

        console.warn(Code.EXPOSED, EXPOSED)
    restarts.run(job, options, folder, console)
    return 0


def _show_topology(job: Any, options: Options) -> int:
    """The picture of the job, as text or as data, and in a file where one is named."""
    import json

    from .placement import topology_preview
    from .report import topology_diagram

    facts = job.survey.facts
    seen = topology_preview.topology(
        job.survey.environment, topology_preview.request(job.placed.slots, facts, job.variables)
    )
    drawing = topology_diagram.boxes(seen, job.placed.slots, facts)
    if options.topology_picture:
        topology_diagram.write_svg(drawing, options.topology_picture)
    if options.json:
        print(json.dumps({**job.plan(), "topology": seen}, indent=1))
    elif options.show_topology:
        print(f"topology from {seen['source']}")
        print(topology_diagram.as_text(drawing))
        for note in seen["notes"]:
            print(f"note: {note}")
    return 0


def _print_plan(plan: Mapping[str, Any]) -> None:
    tiers = plan["tiers"]
    print(
        f"hosts from {plan['origin']}; "
        f"{tiers['nodes']} nodes x {tiers['racks']} racks x {tiers['aisles']} aisles"
    )
    for host in plan["hosts"]:
        slots = [slot for slot in plan["ranks"] if slot["host"] == host["name"]]
        where = " ".join(f"{slot['rank']}:{','.join(map(str, slot['cores'])) or '-'}" for slot in slots)
        print(f"  {host['name']}: {host['ranks']} ranks (rank:cores) {where}")
    if "tasks" in plan:
        from .tasks.plan import in_words

        print(f"tasks: {in_words(plan['tasks'])}")
    print(f"DDL_OPTIONS={plan['ddl_options'] or ''}")
