"""Processes of this host: how they are started, limited, watched and ended.

One vocabulary for all of ddlrun, ddl_sweep and ddl_spark: a *supervisor* starts processes and ends them; a
*guard* outlives the process that it watches, and ends what that has left.

For jobs of ddlrun this file is also a program of its own, on every host, some of which get it as text. So it
imports only the standard library:

    watch JOB PID               until standard input ends; without the word "done" before its end, ddlrun has
                                died: end mpirun, which is PID, and then what is left
    sweep JOB NONCE             end everything of the job, print how many processes that were
    ask JOB NONCE               send SIGTERM to the job's ranks, print how many there are

A process belongs to a job when DDLRUN_JOB in its environment says so, or when it comes from a process of the
job: a program may overwrite its own environment, and may leave its session and its parent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

# Each job starts this program: what takes long to load is loaded where it is used.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

#: In the environment of every process of a job.
VARIABLE = "DDLRUN_JOB"
#: From a polite signal to mpirun, after which it ends its ranks on all hosts, to its kill.
POLITE_SECONDS = 4.0
_KILL_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
# For the last words of what was killed. A helper of it (ssh's ProxyCommand) may hold the pipes for longer.
_DRAIN_SECONDS = 0.5
_SHELLS = ("sh", "bash", "dash", "ash", "busybox", "zsh", "ksh", "ksh93", "mksh", "tcsh", "csh", "fish")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


# ---- start


def die_with_parent(number: int) -> Callable[[], None]:
    """What a child does before its program begins (`preexec_fn`), so that the kernel sends it this signal
    when the thread that has started it ends. Without effect where the system cannot.
    """
    import ctypes

    parent = os.getpid()
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # found before the fork

    def prepare() -> None:
        if prctl:
            prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)  # it has ended in the meantime

    return prepare


def adopt_orphans() -> None:
    """Make this process the parent of all below it whose own parent ends, wherever they went. Without effect
    where the system cannot.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def detach() -> None:
    """Leave the session and the streams of the process that has forked this one, whose signals and whose end
    are not its own.
    """
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


# ---- run


def run_bounded(
    command: Sequence[str], text: str, seconds: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command with this text as its input. subprocess.run would, after the limit, still wait for all
    that hold the command's output open.

    Raises:
        OSError: It cannot be started.
        subprocess.TimeoutExpired: It was killed after so many seconds.
    """
    import subprocess

    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=None if environment is None else dict(environment),
        text=True,
        errors="replace",
    )
    try:
        out, err = child.communicate(text, timeout=seconds)
    except BaseException:
        child.kill()
        try:
            child.communicate(timeout=_DRAIN_SECONDS)
        except (subprocess.TimeoutExpired, ValueError):
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe:
                    with contextlib.suppress(OSError):  # text that the command never read
                        pipe.close()
            child.wait()
        raise
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def run_echoed(command: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[int, list[str]]:
    """Run a command, in the session of this process, and print each line of its output at once. Whoever may
    end this process limits its time.

    Returns:
        The exit code, that of a signal negative, and the lines.

    Raises:
        OSError: It cannot be started.
    """
    import subprocess

    lines = []
    with subprocess.Popen(
        command,
        env=None if environment is None else dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout
        for line in process.stdout:
            lines.append(line)
            sys.stdout.write(line)
            sys.stdout.flush()
    return process.returncode, lines


def shell_code(code: int) -> int:
    """An exit code as shells have it: 128 + n for signal n."""
    return code if code >= 0 else 128 - code


# ---- watch


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


def _ancestors(pid: int, parents: Mapping[int, int]) -> list[int]:
    """The process and those that it comes from, nearest first."""
    line, at = [pid], pid
    while (at := parents.get(at, 0)) > 0 and at not in line:
        line.append(at)
    return line


def children(parent: int | None = None) -> list[int]:
    """Live children of a process; None: of this one."""
    parent = os.getpid() if parent is None else parent
    return [pid for pid, above in _parents().items() if above == parent]


def descendants() -> list[int]:
    """Live processes that come from this one."""
    own_pid, parents = os.getpid(), _parents()
    return [pid for pid in parents if own_pid in _ancestors(pid, parents)[1:]]


def reap() -> dict[int, int]:
    """Exit codes of the children that have ended, orphans too; that of a signal is negative."""
    codes: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            codes[pid] = os.waitstatus_to_exitcode(status)
    return codes


# ---- end


def send(number: int, target: int) -> None:
    """Send a signal to a process or, as kill(2) has it, to the group of a negative number; nothing where it
    is gone.
    """
    with contextlib.suppress(OSError):
        os.kill(target, number)


def kill_all(
    find: Callable[[], Collection[int]],
    on_kill: Callable[[int], None] = lambda _: None,
    grace: float = 0.0,
) -> None:
    """Kill the processes that `find` lists until there are none, which may take some seconds. on_kill: called
    before each. grace: seconds in which they may still end by themselves.
    """
    until = time.monotonic() + grace
    while find() and time.monotonic() < until:
        time.sleep(_PAUSE_SECONDS / 5)
    until = time.monotonic() + _KILL_SECONDS
    while (remaining := find()) and time.monotonic() < until:
        for pid in remaining:
            with contextlib.suppress(OSError):
                on_kill(pid)
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)


def end_descendants(targets: Iterable[int], grace: float) -> dict[int, int]:
    """End all that comes from this process, which has adopted orphans: by SIGTERM to the targets (groups:
    negative numbers), after the grace by SIGKILL to all that is left.

    Returns:
        Exit codes of the children that have ended in that time; that of a signal is negative.
    """
    for target in targets:
        send(signal.SIGTERM, target)
    codes: dict[int, int] = {}

    def find() -> list[int]:
        codes.update(reap())
        return descendants()

    kill_all(find, grace=grace)
    return codes | reap()


# ---- a job of ddlrun


def _environment(pid: int) -> list[bytes]:
    """The assignments in a process's environment; none where it is gone or another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _carries(pid: int, job: str) -> bool:
    return f"{VARIABLE}={job}".encode(errors="surrogateescape") in _environment(pid)


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
    own_pid = os.getpid()
    pids = []
    for pid in parents:
        line = _ancestors(pid, parents)
        if pid == own_pid or any(at in excluded for at in line):
            continue
        if (below is not None and below in line[1:]) or _carries(pid, job):
            pids.append(pid)
    return pids


def ask_ranks(job: str) -> int:
    """Send SIGTERM to the ranks of the job on this host; in place of a shell that waits for its program, and
    would end at once, to that program. What programs have started they end themselves.

    Returns:
        The number of ranks.
    """
    ranks = {pid for pid in _parents() if _carries(pid, job) and _is_rank(pid)}
    parents = _parents()
    first = [pid for pid in ranks if parents.get(pid) not in ranks]
    targets = list(first)
    for pid in targets:  # grows
        with contextlib.suppress(OSError):
            programs = [child for child in ranks if parents.get(child) == pid]
            # the name of a process is that of its script
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) in _SHELLS and programs:
                targets += programs
                if not _catches(pid, signal.SIGTERM):
                    continue
        send(signal.SIGTERM, pid)
    return len(first)


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, such as a shell after `trap`."""
    with open(f"/proc/{pid}/status") as file:
        caught = next((line.split()[1] for line in file if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def _is_rank(pid: int) -> bool:
    """Whether rank_start.py has begun it, or a process of it."""
    return any(entry.startswith(b"RANK=") for entry in _environment(pid))


def end_job(job: str, below: int | None = None, excluded: Collection[int] = (), grace: float = 0.0) -> int:
    """Kill what the job left on this host; how many processes there were. Arguments as for processes_of.
    grace: seconds in which they may still end by themselves.
    """
    killed: set[int] = set()

    def count(pid: int) -> None:
        if not _is_connection(pid):  # mpirun's own to lost hosts, of which nobody needs to know
            killed.add(pid)

    def find() -> list[int]:
        return processes_of(job, below, excluded)

    kill_all(find, count, grace)
    return len(killed)


def _watch(job: str, launcher: int) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    received = b""
    while data := os.read(0, 64):
        received += data
    if received == b"done":
        return 0
    until = time.monotonic() + POLITE_SECONDS
    # Its number may be another's by now: what carries the job's name is the job's.
    if _carries(launcher, job):
        send(signal.SIGTERM, launcher)
    while _carries(launcher, job) and time.monotonic() < until:
        time.sleep(_PAUSE_SECONDS)
    end_job(job)
    return 0


def main(argv: list[str]) -> int:
    deed, job, *rest = argv
    if deed == "watch":
        return _watch(job, int(rest[0]))
    count = ask_ranks(job) if deed == "ask" else end_job(job)
    print(f"\n@@ddlrun:{rest[0]}@@{count}@@ddlrun:{rest[0]}@@", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
