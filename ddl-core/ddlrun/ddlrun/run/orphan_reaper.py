"""Processes of a job on one host, and their end. ddlrun uses it here; on every host it is also a program of
its own, so it imports little and only the standard library:

    run JOB PROGRAM ARGUMENT…   run PROGRAM (mpirun's daemon of this host); when it has ended, by itself or
                                not, end everything that it has left
    watch JOB PID               until standard input ends; without the word "done" before its end, ddlrun has
                                died: end mpirun, which is PID, and then what is left
    sweep JOB NONCE             end everything of the job, print how many processes that were
    ask JOB NONCE               send SIGTERM to the job's ranks, print how many there are

A process belongs to a job when DDLRUN_JOB in its environment says so, or when it comes from a process of the
job: a program may overwrite its own environment, and may leave its session and its parent.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection

#: In the environment of every process of a job.
VARIABLE = "DDLRUN_JOB"
#: From a polite signal to mpirun, after which it ends its ranks on all hosts, to its kill.
POLITE_SECONDS = 4.0
_SWEEP_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the parent of all below it whose own parent ends, wherever they went. Without effect
    where the system cannot.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _parents() -> dict[int, int]:
    """The parent of every live process."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with (
                contextlib.suppress(OSError, ValueError, IndexError),
                open(f"/proc/{name}/stat", "rb") as file,
            ):
                # The name before the last parenthesis may hold anything.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    parents[int(name)] = int(parent)
    return parents


def children() -> list[int]:
    """Live children of this process."""
    own_pid = os.getpid()
    return [pid for pid, parent in _parents().items() if parent == own_pid]


def _carries(pid: int, assignment: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return assignment in file.read().split(b"\0")
    except OSError:
        return False


def _name(pid: int) -> bytes:
    with open(f"/proc/{pid}/comm", "rb") as file:
        return file.read().rstrip()


def _is_connection(pid: int) -> bool:
    """Whether this is a remote shell of mpirun's."""
    if _name(pid) in (b"ssh", b"blaunch", b"pbs_tmrsh"):
        return True
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return any(word.endswith(b"/scheduler_shell.py") for word in file.read().split(b"\0")[:5])


def processes_of(job: str, below: int | None = None, excluded: Collection[int] = ()) -> list[int]:
    """Live processes of a job on this host. below: all that come from this one belong to the job. excluded:
    do not, nor do those that come from them.
    """
    parents = _parents()
    own_pid, assignment = os.getpid(), f"{VARIABLE}={job}".encode(errors="surrogateescape")
    pids = []
    for pid in parents:
        line, at = [pid], pid
        while (at := parents.get(at, 0)) > 0 and at not in line:
            line.append(at)
        if pid == own_pid or any(at in excluded for at in line):
            continue
        if (below is not None and below in line[1:]) or _carries(pid, assignment):
            pids.append(pid)
    return pids


def ask_ranks(job: str) -> int:
    """Send SIGTERM to the ranks of the job on this host, not to what they have started; how many there
    are."""
    assignment = f"{VARIABLE}={job}".encode(errors="surrogateescape")
    ranks = {pid for pid in _parents() if _carries(pid, assignment) and _is_rank(pid)}
    parents = _parents()
    first = [pid for pid in ranks if parents.get(pid) not in ranks]
    for pid in first:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)
    return len(first)


def _is_rank(pid: int) -> bool:
    """Whether rank_environment.sh has begun it, or a process of it."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return any(entry.startswith(b"RANK=") for entry in file.read().split(b"\0"))
    except OSError:
        return False


def end(job: str, below: int | None = None, excluded: Collection[int] = (), grace: float = 0.0) -> int:
    """Kill what the job left on this host; how many processes there were. Arguments as for processes_of.
    grace: seconds in which they may still end by themselves.
    """
    killed: set[int] = set()
    # mpirun's own connections to lost hosts, of which nobody needs to know
    uncounted: set[int] = set()
    until = time.monotonic() + grace
    while processes_of(job, below, excluded) and time.monotonic() < until:
        time.sleep(_PAUSE_SECONDS / 5)
    until = time.monotonic() + _SWEEP_SECONDS
    while (remaining := processes_of(job, below, excluded)) and time.monotonic() < until:
        for pid in remaining:
            with contextlib.suppress(OSError):
                if _is_connection(pid):
                    uncounted.add(pid)
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        time.sleep(_PAUSE_SECONDS)
    return len(killed - uncounted)


def _run(job: str, command: list[str]) -> int:
    os.environ[VARIABLE] = job
    adopt_orphans()
    polite = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    # Schedulers and terminals signal all processes at once: the program decides when to end.
    for number in polite:
        signal.signal(number, signal.SIG_IGN)
    if "SLURM_STEP_ID" in os.environ:
        # A warning by Slurm's --signal comes to all processes of a step. It is meant for ranks: this one and
        # the daemon would end by it, and so the ranks. start/default_signals.py takes it back for these.
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        os.environ["DDLRUN_SIGNALS_IGNORED"] = "1"
    child = os.fork()
    if not child:
        try:
            # Python ignores the last two, which would go on to the ranks.
            for number in (*polite, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.execvp(command[0], command)
        except OSError as error:
            print(f"ddlrun: {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        finally:
            os._exit(127)
    ended = status = 0
    while ended != child:
        ended, status = os.wait()  # orphans too
    end(job, below=os.getpid())
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _watch(job: str, launcher: int) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    received = b""
    while data := os.read(0, 64):
        received += data
    if received == b"done":
        return 0
    assignment = f"{VARIABLE}={job}".encode(errors="surrogateescape")
    until = time.monotonic() + POLITE_SECONDS
    # Its number may be another's by now: what carries the job's name is the job's.
    if _carries(launcher, assignment):
        with contextlib.suppress(OSError):
            os.kill(launcher, signal.SIGTERM)
    while _carries(launcher, assignment) and time.monotonic() < until:
        time.sleep(_PAUSE_SECONDS)
    end(job)
    return 0


def main(argv: list[str]) -> int:
    deed, job, *rest = argv
    if deed == "run":
        return _run(job, rest)
    if deed == "watch":
        return _watch(job, int(rest[0]))
    count = ask_ranks(job) if deed == "ask" else end(job)
    print(f"\n@@ddlrun:{rest[0]}@@{count}@@ddlrun:{rest[0]}@@", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
