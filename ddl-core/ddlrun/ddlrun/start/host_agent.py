"""host_agent.py JOB PROGRAM ARGUMENT…: mpirun's daemon of this host, of which nothing outlives its end.

When the daemon has ended, by itself or not, everything that it has left is ended. Meanwhile the output of
this host's ranks goes to ddlrun (see output_collector.py).

A file, and no module, so that a host needs no PYTHONPATH for it.
"""

import os
import re
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    # instead of this file's folder, whose modules have common names
    sys.path[0] = str(Path(__file__).absolute().parents[2])

from ddlrun import output_collector, processes

# Settings of an MPI that start files of this host make, for programs that are started there.
_OF_MPI = re.compile(r"(OMPI|OPAL|PRTE|PMIX|PMI)_")
_POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def _begin(command: list[str]) -> int:
    """The pid of the daemon."""
    child = os.fork()
    if child:
        return child
    try:
        # Python ignores the last two, which would go on to the ranks.
        for number in (*_POLITE, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as error:
        print(f"ddlrun: {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


def main(job: str, command: list[str]) -> int:
    by_scheduler = "SLURM_STEP_ID" in os.environ
    if not by_scheduler:
        # mpirun itself says where a moved environment is.
        for name in [name for name in os.environ if _OF_MPI.match(name) and os.environ[name] != sys.prefix]:
            del os.environ[name]
    os.environ[processes.VARIABLE] = job
    processes.adopt_orphans()
    # Schedulers and terminals signal all processes at once: the program decides when to end.
    for number in _POLITE:
        signal.signal(number, signal.SIG_IGN)
    if by_scheduler:
        # A warning by Slurm's --signal comes to all processes of a step. It is meant for ranks: this one and
        # the daemon would end by it, and so the ranks. start/rank_start.py takes it back for these.
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        os.environ["DDLRUN_SIGNALS_IGNORED"] = "1"
    sender = output_collector.Sender()
    collector = output_collector.Collector(sender.send, sender.ready)
    os.environ[output_collector.VARIABLE] = collector.name
    child = _begin(command)
    collector.start()
    ended = status = 0
    while ended != child:
        ended, status = os.wait()  # orphans too
    processes.end_job(job, below=os.getpid())
    # However long ddlrun's reader takes; it ends with ddlrun.
    collector.finish()
    sender.close()
    return processes.shell_code(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
