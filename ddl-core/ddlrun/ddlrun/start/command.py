"""The mpirun line and the environment it runs in."""

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from .. import output_collector, rank_variables
from ..command_line.options import Options, usage
from ..environment import Environment
from ..errors import Code, LaunchError
from ..hosts.schedulers import slurm
from ..placement.slots import Placement
from . import rank_start, rendezvous, stdin_of_rank_0
from .launch_agent import launch_agent
from .launcher_messages import reporting

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What mpirun hands to the ranks; the rest is in the last of them.
_EXPORTED = ("DDLRUN_JOB", output_collector.OUTPUT_VARIABLE, stdin_of_rank_0.VARIABLE, rank_start.VARIABLE)
# The kernel's limit for one variable is 128 KiB.
_LONGEST = 120 << 10
_OF_EACH_RANK = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", *rank_variables.MPI_RANK)
#: Of a launcher around ddlrun, or of the last start: they would be taken for those of this one.
OF_A_RANK = (*rendezvous.OF_A_RANK, *rank_start.INTERNAL, rank_start.VARIABLE)
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
# Read by ddl_tf1 of the package ddl-tensorflow, and its values that leave the mode off.
_TF1 = "DDL_TF1"
_TF1_OFF = ("", "0", "no", "off", "false")
_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT")


def job_environment(
    environment: Environment, options: Options, ddl_options: str | None, job: str
) -> dict[str, str]:
    """The environment of the launcher, which all ranks get (see rank_start.py)."""
    variables = {
        name: value
        # which would make mpirun believe that it is a rank itself
        for name, value in rank_variables.without(os.environ).items()
        if name not in OF_A_RANK
    }
    variables["PATH"] = environment.path()
    if (environment.prefix / "conda-meta").is_dir():
        variables["CONDA_PREFIX"] = str(environment.prefix)
        variables["CONDA_DEFAULT_ENV"] = environment.prefix.name
    variables["DDLRUN_JOB"] = job
    # The environment is what was tested together; packages in ~/.local would take its packages' places.
    variables.setdefault("PYTHONNOUSERSITE", "1")
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
    if options.tf1:
        _require_tensorflow(environment)
        # The user's own value may name packages, too.
        if variables.get(_TF1, "").strip().lower() in _TF1_OFF:
            variables[_TF1] = "1"
    if options.interface:
        variables |= {name: options.interface for name in _INTERFACE_VARIABLES}
    if "SLURM_JOB_ID" in variables:
        # Slurm would keep mpirun's daemons waiting until the last run's have left a host that is down.
        variables.setdefault("SLURM_OVERLAP", "1")
        # After `sbatch --export=NONE` the daemons would start without an environment.
        variables["SLURM_EXPORT_ENV"] = "ALL"
        by_image = environment.image and shutil.which("srun", path=variables["PATH"]) is None
        if slurm.components(variables) > 1 or slurm.is_of_step(variables):
            # What mpirun would read of the job is a part of it.
            variables.setdefault("PRTE_MCA_ras", "^slurm")
        if by_image or slurm.components(variables) > 1:
            # mpirun would ask for srun, as it sees a job of Slurm around; but the image has none, and a step
            # is of one component of a heterogeneous job.
            variables.setdefault("PRTE_MCA_plm", "ssh")
    # mpirun would look for the values in its own environment, and fail where one is missing. Ranks get all
    # variables by ddlrun.
    listed = variables.pop("OMPI_MCA_mca_base_env_list", "")
    for text in listed.split(variables.pop("OMPI_MCA_mca_base_env_list_delimiter", "") or ";"):
        name, equals, value = text.partition("=")
        if equals and _VARIABLE.fullmatch(name):
            variables[name] = value
    if os.geteuid() == 0:
        for name in _ROOT:
            variables[name] = variables[f"{name}_CONFIRM"] = "1"
    for text in options.x:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise usage(f"-x {text!r} names no variable", "write -x NAME or -x NAME=VALUE")
        if name in _OF_EACH_RANK:
            raise usage(
                f"-x {name}: every rank has its own", "leave it out; -np and -H say how many ranks there are"
            )
        if equals:
            variables[name] = value
        elif name not in variables:
            raise usage(f"-x {name}: the variable is not set", "set it, or write -x NAME=VALUE")
    return variables


def _require_tensorflow(environment: Environment) -> None:
    """Raises LaunchError where -tf1 would do nothing."""
    for name, package in (("tensorflow", "tensorflow"), ("ddl_tf1", "ddl-tensorflow")):
        if not environment.package.with_name(name).is_dir():
            raise LaunchError(
                Code.ENVIRONMENT,
                f"-tf1: the package {package} is not installed",
                f"in {environment.prefix}",
                f"install it (`conda install {package}`), or leave -tf1 out",
            )


def chosen(options: Options) -> list[str]:
    """Names of variables that the user wants on all hosts, also where a host has its own."""
    names = [text.partition("=")[0] for text in options.x]
    if options.interface:
        names += [name for name in _INTERFACE_VARIABLES if name.endswith("IFNAME")]
    return names


def handed_on(variables: Mapping[str, str], options: Options) -> str:
    """The environment for all ranks, as rank_start.py reads it. Raises LaunchError where it is too large."""
    text = rank_start.encode(variables, chosen(options))
    if len(text) > _LONGEST:
        largest = max(variables, key=lambda name: len(variables[name]))
        raise LaunchError(
            Code.USAGE,
            "the environment is too large to be handed to the ranks; "
            f"{largest} has {len(variables[largest])} bytes",
            "in the environment of ddlrun",
            f"unset what the program does not need: `env -u {largest} ddlrun …`",
            exit_code=2,
        )
    return text


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
    arguments = options.launcher_words()
    if options.rankfile:
        command += ["--map-by", f"rankfile:file={Path(options.rankfile).resolve()}"]
    elif "--map-by" not in arguments:  # which mpirun takes once
        command += ["--map-by", f"rankfile:file={folder / 'RANKFILE'}" if placement.bound else "slot"]
    if not placement.bound and not options.rankfile and "--bind-to" not in arguments:
        command += ["--bind-to", "none"]
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
    for name in _EXPORTED:
        if name in variables:
            command += ["-x", name]
    return [*command, *arguments, *rendezvous.wrapped(options.program, environment)]


def as_typed(command: list[str]) -> str:
    """The line as it could be typed."""
    return f"+ {shlex.join(command)}"
