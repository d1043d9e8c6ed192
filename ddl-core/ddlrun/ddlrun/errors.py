"""What ddlrun says when something is wrong: `[ERROR DDL-2-<code>] what; where; remedy`."""

from collections.abc import Mapping
from enum import IntEnum


class Code(IntEnum):
    """Numbers of the messages. They are looked up by users: a number never changes its meaning."""

    USAGE = 0
    HOSTS = 1
    HOSTFILE = 2
    TOPOLOGY = 3
    SLOTS = 4
    PROGRAM = 5
    UNREACHABLE = 6
    REFUSED = 7
    ENVIRONMENT = 8
    DDL = 9
    MPI = 10
    NESTED = 11
    FOLDER = 12
    RANK = 13
    TIMEOUT = 14
    INTERRUPTED = 15
    LAUNCHER = 16
    HARDWARE = 17
    UNBOUND = 18
    OPTIONS_REPLACED = 19
    LEFTOVERS = 20
    SHM = 21
    SHORTAGE = 22
    RESTART = 23
    NO_LAUNCHER = 24
    DESCRIPTION = 25
    IMAGE = 26
    NO_DRIVER = 27
    OLD_DRIVER = 28
    NO_GPU = 29
    VISIBLE_GPUS = 30
    SHARED_GPUS = 31
    GPU_FAILURE = 32
    TASK = 33
    CLUSTER = 34
    EXPOSED = 35


#: One line a code, for the documentation.
MEANINGS = {
    Code.USAGE: "the command line is wrong",
    Code.HOSTS: "a host name or a scheduler's host list is wrong",
    Code.HOSTFILE: "a hostfile or rankfile is wrong; the line is named",
    Code.TOPOLOGY: "nodes x racks x aisles, or the sizes of -mode, do not fit the job",
    Code.SLOTS: "more ranks asked for than the hosts have slots",
    Code.PROGRAM: "the program to start was not found",
    Code.UNREACHABLE: "a host cannot be reached",
    Code.REFUSED: "a host refuses the login: key or host key",
    Code.ENVIRONMENT: "the environment is missing on a host, or cannot run there",
    Code.DDL: "DDL is missing on a host or has another version there",
    Code.MPI: "MPI is missing on a host or has another version there",
    Code.NESTED: "ddlrun was started inside a rank of a running job",
    Code.FOLDER: "the folder for temporary files cannot be used",
    Code.RANK: "a rank failed",
    Code.TIMEOUT: "the job took longer than -timeout allows",
    Code.INTERRUPTED: "the job was ended by a signal to ddlrun",
    Code.LAUNCHER: "mpirun failed",
    Code.HARDWARE: "the hosts differ: cores, accelerators, processors, drivers, network, clocks (warning)",
    Code.UNBOUND: "ranks are not bound to cores (warning)",
    Code.OPTIONS_REPLACED: "an option replaces a part of DDL_OPTIONS (warning)",
    Code.LEFTOVERS: "processes of the job outlived it and were ended (warning)",
    Code.SHM: "/dev/shm of a host is missing, full or too small",
    Code.SHORTAGE: "a host has little memory or disk left (warning)",
    Code.RESTART: "the job failed and is started again, or too few hosts are left for that",
    Code.NO_LAUNCHER: "the launcher of -launcher is missing, or cannot start this job from here",
    Code.DESCRIPTION: "a cluster description or step times are wrong; the place is named",
    Code.IMAGE: "an image is missing on a host, cannot be entered there, or does not fit",
    Code.NO_DRIVER: "GPUs are needed, and a host has no NVIDIA driver, or a container not its libraries",
    Code.OLD_DRIVER: "the NVIDIA driver of a host is too old for CUDA 12",
    Code.NO_GPU: "a host has an NVIDIA driver, and no GPU that the job may use",
    Code.VISIBLE_GPUS: "CUDA_VISIBLE_DEVICES is empty or wrong on a host",
    Code.SHARED_GPUS: "a host has more ranks than GPUs; with -gpus shared a warning",
    Code.GPU_FAILURE: "the NVIDIA driver of a host fails or hangs, or one of its GPUs (error or warning)",
    Code.TASK: "a task of a TensorFlow cluster failed; as a warning: it is started again",
    Code.CLUSTER: "the cluster of -tf-config or -ps cannot be formed",
    Code.EXPOSED: "servers of the job accept everybody who reaches their ports (warning)",
}


class LaunchError(Exception):
    """A start that cannot go on.

    what: the finding. where: the option, file and line, or host. remedy: what to do. exit_code: of ddlrun.
    """

    def __init__(self, code: Code, problem: str, where: str, remedy: str, exit_code: int = 1) -> None:
        super().__init__(f"[ERROR DDL-2-{int(code)}] {problem}; {where}; {remedy}")
        self.code = code
        self.problem, self.where, self.remedy = problem, where, remedy
        self.exit_code = exit_code


#: So many findings are printed; all of them are in the log.
SHOWN = 16


class Failures(LaunchError):
    """Several findings at once, by the host concerned."""

    def __init__(self, failures: Mapping[str, LaunchError]) -> None:
        errors = list(failures.values())
        super().__init__(errors[0].code, errors[0].problem, errors[0].where, "", errors[0].exit_code)
        lines = list(map(str, errors[:SHOWN]))
        if len(errors) > SHOWN:
            lines.append(
                f"{len(errors) - SHOWN} other hosts cannot take part either; the log names each of them"
            )
        self.args = ("\n".join(lines),)
        self.hosts = tuple(failures)
