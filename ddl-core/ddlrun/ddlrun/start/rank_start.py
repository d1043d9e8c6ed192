"""rank_start.py PROGRAM ARGUMENT…: the program as a rank, in the environment of ddlrun.

ddlrun hands on its environment in DDLRUN_RANK, the same to all ranks, so that a setting reaches each of them
by whatever their hosts are reached. The launcher tells each rank its number; from that follow torchrun's
variables RANK, LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK (the host's number), and the rank's GPU.

Some variables belong to a host (BOUND_TO_HOST): those stay what they are there. What else a host's start
files set does not reach the ranks.

A program of its own, on every host: it imports the standard library only.
"""

from __future__ import annotations

# signal without its enumerations, which take as long to load as all of the rest
import _signal as signal
import marshal
import os
import sys
import time

# Every rank starts this program: what takes long to load is loaded where it is used.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

#: What ddlrun hands on.
VARIABLE = "DDLRUN_RANK"
#: Variables that mean something on one host only. docs/reference/ddlrun-reference.md lists them.
BOUND_TO_HOST = frozenset(
    [
        *("HOSTNAME", "HOST", "USER", "LOGNAME", "SHELL", "MAIL", "PWD", "OLDPWD", "SHLVL", "_"),
        *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "WINDOWID", "STY", "XDG_RUNTIME_DIR", "XDG_VTNR"),
        *("KRB5CCNAME", "INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET"),
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        *("GPU_DEVICE_ORDINAL", "PBS_TASKNUM", "PBS_NODENUM", "PBS_VNODENUM"),
        *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID"),
        *("SLURM_LAUNCH_NODE_IPADDR", "SLURM_CPUS_ON_NODE", "SLURM_JOB_GPUS"),
    ]
)
#: The same by their beginnings.
BOUND_BEGINNINGS = (
    *("SSH_", "TMUX", "XDG_SESSION_", "XDG_SEAT", "DBUS_", "LISTEN_", "FLUX_TASK_", "JSM_"),
    *("SLURM_STEP", "SLURM_SRUN_", "SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_TOPOLOGY_ADDR", "SLURMD_"),
)
# Of launchers, which tell a rank what is its own; and what a host may have chosen for its devices.
_OF_HOST_IF_SET = frozenset(
    ("UCX_NET_DEVICES", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
)
_OF_LAUNCHERS = ("OMPI_", "OPAL_", "PRTE_", "PMIX_", "PMI_", "SLURM_", "FLUX_", "PBS_", "LSB_")
#: Folders: the user's, on hosts that have it.
FOLDERS = ("HOME", "TMPDIR")
_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK")
_LOCAL_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "FLUX_TASK_LOCAL_ID")
#: How ddlrun and the agents of hosts tell what is to be done; no program sees these.
INTERNAL = (
    "DDLRUN_HOST_RANKS",
    "DDLRUN_UNBOUND",
    "DDLRUN_GPU_ROW_OF_RANK",
    "DDLRUN_GPU_ROWS",
    "DDLRUN_IS_REMOTE",
    "DDLRUN_INTERFACES",
)
# By which interface libraries of frameworks reach other hosts; else they ask what the host's name means,
# which often is 127.0.1.1.
_OF_INTERFACE = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_OF_START = ("DDLRUN_COLLECTOR", "DDLRUN_OUTPUT", "DDLRUN_STDIN", "DDLRUN_SIGNALS_IGNORED")
#: Names the file that the programs of a rank share.
STATE_VARIABLE = "DDLRUN_STATE"
# Its name, and the least number, which shells leave alone.
_STATE, _STATE_LEAST = "ddl-rank", 200
# An agent may need some seconds to find the way to ddlrun.
_HAND_OVER_SECONDS = 30.0
# Open MPI 5.0.11 misses the end of a rank on another host that lasts a few milliseconds only, and then waits
# for ever: `mpirun … true` on 4 hosts hung in 6 of 120 starts, and in none of 160 with this pause.
_PAUSE_SECONDS = 0.05


# ---- what ddlrun hands on


def _bound(name: str) -> bool:
    return name in BOUND_TO_HOST or name.startswith(BOUND_BEGINNINGS)


def encode(variables: Mapping[str, str], chosen: Collection[str] = ()) -> str:
    """The value of DDLRUN_RANK. chosen: names that the user wants on every host, whatever they are."""
    import zlib

    handed = {
        name: value
        for name, value in variables.items()
        if (name in chosen or not _bound(name)) and name not in (VARIABLE, *_OF_START)
    }
    # Of modules that load fast: the Python that reads it is the one that writes it.
    return zlib.compress(marshal.dumps((handed, sorted(set(chosen) & set(handed))))).hex()


def decode(text: str) -> tuple[dict[str, str], list[str]]:
    """The variables and the chosen names of a value that `encode` made."""
    import zlib

    handed: tuple[dict[str, str], list[str]] = marshal.loads(zlib.decompress(bytes.fromhex(text)))
    return handed


def escaped(arguments: Collection[str]) -> list[str]:
    """Words of a program, none of which is a lone colon: launchers would begin another program there."""
    return ["\\" + word if _is_colon(word) else word for word in arguments]


def _is_colon(word: str) -> bool:
    return word.lstrip("\\") == ":"


def unescaped(arguments: Collection[str]) -> list[str]:
    """The words as they were."""
    return [word[1:] if word.startswith("\\") and _is_colon(word) else word for word in arguments]


# ---- the environment of a rank


def merged(launched: Mapping[str, str], handed: Mapping[str, str], chosen: Collection[str]) -> dict[str, str]:
    """The environment that a rank's program gets. launched: what the launcher has begun this process with."""
    variables = {name: value for name, value in handed.items() if name not in FOLDERS}
    for name, value in launched.items():
        of_host = _bound(name) or name in _OF_HOST_IF_SET or name.startswith(_OF_LAUNCHERS)
        if of_host and name not in chosen:
            variables[name] = value
    for name in FOLDERS:
        values = [value for value in (handed.get(name), launched.get(name)) if value]
        usable = [value for value in values if name in chosen or os.access(value, os.W_OK | os.X_OK)]
        # Where there is none, the program may say so.
        if values:
            variables[name] = (usable or values[-1:])[0]
    return variables


def _number(variables: Mapping[str, str], names: Collection[str]) -> int | None:
    """The first of these variables that is set, where it is a number."""
    text = next((variables[name] for name in names if variables.get(name)), "")
    return int(text) if text.isascii() and text.isdecimal() else None


def _processors() -> float:
    """Processors that the ranks of this host may use: by affinity, and by the time of a container or job."""
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from checks.probe import quota

    return min(len(os.sched_getaffinity(0)), quota() or float("inf"))


def set_rank(variables: dict[str, str], rank: int) -> None:
    """Add torchrun's variables, and those of the rank's GPU."""
    counts = [int(count) for count in variables.get("DDLRUN_HOST_RANKS", "").split(",") if count]
    unbound, rows = variables.get("DDLRUN_UNBOUND"), variables.get("DDLRUN_GPU_ROWS", "").split(";")
    row_of_rank = variables.get("DDLRUN_GPU_ROW_OF_RANK", "").split(",")
    variables["RANK"] = str(rank)
    interfaces = variables.get("DDLRUN_INTERFACES", "").split(",")
    local_rank = _number(variables, _LOCAL_RANK)
    local_size: int | None = None
    if counts:
        local_rank = rank
        for number, local_size in enumerate(counts):
            if local_rank < local_size:
                variables["GROUP_RANK"] = str(number)
                if number < len(interfaces) and interfaces[number]:
                    for name in _OF_INTERFACE:
                        variables.setdefault(name, interfaces[number])
                break
            local_rank -= local_size
    else:
        local_size = _number(variables, ("OMPI_COMM_WORLD_LOCAL_SIZE",))
    if local_rank is not None:
        variables["LOCAL_RANK"] = str(local_rank)
    if local_size is not None:
        variables["LOCAL_WORLD_SIZE"] = str(local_size)
        if unbound and not variables.get("OMP_NUM_THREADS"):
            variables["OMP_NUM_THREADS"] = str(max(1, int(_processors() // max(1, local_size))))
    row = row_of_rank[rank] if rank < len(row_of_rank) else ""
    for assignment in rows[int(row)].split() if row.isdecimal() and int(row) < len(rows) else ():
        name, _, value = assignment.partition("=")
        if name != "UCX_NET_DEVICES" or not variables.get(name):  # the host's own choice stays
            variables[name] = value


# ---- the start


def _usual_signals(*, also_users: bool) -> None:
    """The usual effect of signals that Python ignores, and of those that mpirun's daemon here does
    (see host_agent.py)."""
    numbers = [signal.SIGPIPE, signal.SIGXFSZ]
    if also_users:
        numbers += [signal.SIGUSR1, signal.SIGUSR2]
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)


def _redirect_output(
    rank: int, collector: str, way: str, terminals: Sequence[int], size: Sequence[int]
) -> None:
    """Give the program pipes of its own, which the collector of this host reads; terminals where ddlrun's own
    output is one. Without effect where nobody takes them: the launcher has the output then."""
    pairs = []
    for number in (1, 2):
        is_terminal = number in terminals
        pairs.append(os.openpty() if is_terminal else os.pipe())
        if is_terminal:
            _set_up_terminal(pairs[-1][1], size)
    if _hand_over(collector, rank, way, [reader for reader, _ in pairs]):
        for number, (_, writer) in enumerate(pairs, 1):
            os.dup2(writer, number)
    for pair in pairs:
        for number in pair:
            os.close(number)


def _set_up_terminal(number: int, size: Sequence[int]) -> None:
    """Make it as large as ddlrun's, and let every byte pass as the program writes it."""
    import fcntl
    import struct
    import termios

    settings = termios.tcgetattr(number)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(number, termios.TCSANOW, settings)
    columns, rows = size
    fcntl.ioctl(number, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))


def _hand_over(collector: str, rank: int, way: str, readers: Sequence[int]) -> bool:
    """Give the reading ends of the program's output to the collector (see output_collector.py); whether it
    takes them.
    """
    import array
    import socket

    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", readers))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_HAND_OVER_SECONDS)
            connection.connect(f"\0{collector}")
            # An abstract name may be anybody's.
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if int.from_bytes(peer[4:8], sys.byteorder) != os.geteuid():
                return False
            connection.sendmsg([f"{rank} {way}".encode()], [rights])
            return connection.recv(1) == b"+"
    except OSError:
        return False


def _provide_state() -> str:
    """Open what the programs of this rank have in common, however many a script of its starts one after the
    other: a file in memory, whose number they inherit. ddl notes there that MPI was started.
    """
    import fcntl

    number = os.memfd_create(_STATE, 0)
    high = fcntl.fcntl(number, fcntl.F_DUPFD, _STATE_LEAST)
    os.close(number)
    return str(high)


def main(arguments: list[str]) -> int:
    """Become the program; the exit code where that fails."""
    launched = dict(os.environ)
    handed, chosen = decode(launched[VARIABLE]) if VARIABLE in launched else (launched, [])
    collector, output, way_of_input, ignored = (launched.pop(name, "") for name in _OF_START)
    variables = merged(launched, handed, chosen)
    command, folder = unescaped(arguments), os.path.dirname(os.path.abspath(__file__))
    rank = _number(launched, _RANK)
    if rank is not None:
        set_rank(variables, rank)
        variables[STATE_VARIABLE] = _provide_state()
        if collector and output:
            terminals, columns, rows, *way = output.split()
            numbers = [int(number) for number in terminals.strip("-")]
            _redirect_output(rank, collector, " ".join(way), numbers, (int(columns), int(rows)))
        if "DDLRUN_TF_TASKS" in variables:
            command = [sys.executable, "-I", f"{folder}/task_supervisor.py", *command]
        if way_of_input and rank == 0:
            sys.path.insert(0, folder)
            import stdin_of_rank_0

            stdin_of_rank_0.attach(way_of_input)
    if "DDLRUN_IS_REMOTE" in variables and not os.path.basename(command[0]).startswith("python"):
        time.sleep(_PAUSE_SECONDS)
    for name in INTERNAL:
        variables.pop(name, None)
    _usual_signals(also_users=bool(ignored))
    try:
        os.execvpe(command[0], command, variables)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 126 if isinstance(error, PermissionError) else 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
