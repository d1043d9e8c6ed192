"""The mpirun line and the environment it runs in."""

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import rank_variables
from ..command_line.options import Options, usage
from ..environment import Environment
from ..placement.slots import Placement
from . import gpu_environment, rendezvous
from .launch_agent import launch_agent
from .launcher_messages import reporting

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Handed to the ranks wherever they are, when set here. mpirun's own variables travel by its own ways.
_EXPORTED = (
    "PATH",
    "PYTHONPATH",
    "PYTHONNOUSERSITE",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "DDLRUN_JOB",
    "DDLRUN_STDIN",
)
# mpirun and its daemons miss a host that is gone, without a last word, after 8 s instead of 8 minutes.
_KEEPALIVE = {"time": "2", "intvl": "2", "probes": "3"}
# mpirun would start its daemons in a tree: itself the first 64, these the next by an ssh of their own. Keys,
# agents and known hosts are seldom on all hosts, and only the way from here is checked. So all are started
# from here. Each keeps its ssh until it ends: were fewer allowed at a time than there are hosts, mpirun would
# wait for ever.
_DAEMONS = {"PRTE_MCA_plm_ssh_no_tree_spawn": "1", "PRTE_MCA_plm_ssh_num_concurrent": "100000"}
# Open MPI's own connections, its daemons', and those of the libraries that frameworks bring.
_INTERFACE_VARIABLES = (
    "OMPI_MCA_btl_tcp_if_include",
    "PRTE_MCA_prte_if_include",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
)
_LIBRARY_PATH = "LD_LIBRARY_PATH"
_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT")


def job_environment(
    environment: Environment, options: Options, ddl_options: str | None, job: str
) -> dict[str, str]:
    """The environment of mpirun, from which the ranks' is exported."""
    variables = {
        name: value
        # which would make mpirun believe that it is a rank itself
        for name, value in rank_variables.without(os.environ).items()
        if name not in rendezvous.OF_A_RANK
    }
    variables["PATH"] = environment.path()
    if (environment.prefix / "conda-meta").is_dir():
        variables["CONDA_PREFIX"] = str(environment.prefix)
        variables["CONDA_DEFAULT_ENV"] = environment.prefix.name
    variables["DDLRUN_JOB"] = job
    if ddl_options is not None:
        variables["DDL_OPTIONS"] = ddl_options
    # A thread that waits in MPI would otherwise hold the core that the training's threads compute on. Horovod
    # has one that waits most of the time.
    variables.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    # A rank whose connection to a failed one closes aborts at once, and would be taken for the first that
    # failed. A moment later mpirun knows better, and ends it by a signal.
    variables.setdefault("OMPI_MCA_opal_abort_delay", "1")
    for setting, value in _KEEPALIVE.items():
        variables.setdefault(f"PRTE_MCA_oob_tcp_keepalive_{setting}", value)
    for name, value in _DAEMONS.items():
        variables.setdefault(name, value)
    if options.interface:
        variables |= {name: options.interface for name in _INTERFACE_VARIABLES}
    if "SLURM_JOB_ID" in variables:
        # Slurm would keep mpirun's daemons waiting until the last run's have left a host that is down.
        variables.setdefault("SLURM_OVERLAP", "1")
        if environment.image and shutil.which("srun", path=variables["PATH"]) is None:
            # mpirun would ask for srun, as it sees a job of Slurm around the image.
            variables.setdefault("PRTE_MCA_plm", "ssh")
    if os.geteuid() == 0:
        for name in _ROOT:
            variables[name] = variables[f"{name}_CONFIRM"] = "1"
    for text in options.x:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise usage(f"-x {text!r} names no variable", "write -x NAME or -x NAME=VALUE")
        if equals:
            variables[name] = value
        elif name not in variables:
            raise usage(f"-x {name}: the variable is not set", "set it, or write -x NAME=VALUE")
    return variables


def exported(options: Options, environment: Mapping[str, str]) -> list[str]:
    """Names of the variables that mpirun hands to the ranks on all hosts."""
    names = [
        name for name in (*_EXPORTED, *rendezvous.EXPORTED, *gpu_environment.EXPORTED) if name in environment
    ]
    names += sorted(name for name in environment if name.startswith("DDL_") and _VARIABLE.fullmatch(name))
    if options.interface:
        names += [name for name in _INTERFACE_VARIABLES if name.endswith("IFNAME")]
    names += [text.partition("=")[0] for text in options.x]
    # by as_here()
    return [name for name in dict.fromkeys(names) if name != _LIBRARY_PATH]


def mpirun_line(
    environment: Environment,
    options: Options,
    placement: Placement,
    folder: Path,
    variables: Mapping[str, str],
    *,
    remote: bool,
    stdin_is_tty: bool,
) -> list[str]:
    """The words of the line. Files of the placement are expected in ``folder``; a user's rankfile where it
    is.
    """
    command = [
        str(environment.mpirun),
        "--hostfile",
        str(folder / "HOSTFILE"),
        "-np",
        str(len(placement.slots)),
    ]
    if options.rankfile:
        command += ["--map-by", f"rankfile:file={Path(options.rankfile).resolve()}"]
    elif placement.bound:
        command += ["--map-by", f"rankfile:file={folder / 'RANKFILE'}"]
    else:
        command += ["--map-by", "slot", "--bind-to", "none"]
    command += ["--output", "tag-fullname", *reporting(remote)]
    if not stdin_is_tty:
        command += ["--stdin", "none"]
    if remote:
        # The same as the checks': it never asks for a password and never waits for a dead host.
        command += ["--prtemca", "plm_ssh_agent", environment.remote_shell.agent]
        command += ["--prtemca", "prte_launch_agent", launch_agent(environment, variables["DDLRUN_JOB"])]
    if options.wdir:
        command += ["--wdir", os.path.abspath(options.wdir)]
    if options.tcp:
        command += ["--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp"]
    for name in exported(options, variables):
        command += ["-x", name]
    program = patient(options.program) if remote else list(options.program)
    program = rendezvous.wrapped(program, environment)
    return [*command, *options.launcher_words(), *as_here(program, variables)]


def as_here(program: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The program, with the LD_LIBRARY_PATH that ddlrun has, or none.

    mpirun's daemons put the environment's lib folder in front, where it finds its own libraries. Programs of
    the host,
    such as its shells and compilers, would load the environment's libraries instead of the host's; those of
    the
    environment find each other without. (A shell could not take it out: it would be such a program itself.)
    """
    if not program:
        return []
    value = variables.get(_LIBRARY_PATH)
    return [
        "/usr/bin/env",
        *(["-u", _LIBRARY_PATH] if value is None else [f"{_LIBRARY_PATH}={value}"]),
        *program,
    ]


def patient(program: Sequence[str]) -> list[str]:
    """The program, begun a moment later unless its own start takes that long.

    Open MPI 5.0.11 misses the end of a rank on another host that lasts a few milliseconds only, and then
    waits for ever: `mpirun … true` on 4 hosts hung in 6 of 120 starts, and in none of 160 with this pause.
    """
    if not program or Path(program[0]).name.startswith("python"):
        return list(program)
    return ["/bin/sh", "-c", 'sleep 0.05; exec "$@"', "sh", *program]


def as_typed(command: list[str]) -> str:
    """The line as it could be typed."""
    return f"+ {shlex.join(command)}"
