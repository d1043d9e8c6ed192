"""Open MPI's mpirun: over ssh, or by the daemons of the scheduler around."""

from ..command import mpirun_line
from .base import Launcher, Splitter, Start
from .marks import MarkSplitter


class Mpirun(Launcher):
    name = "mpirun"
    kills_at_once = True

    def line(self, start: Start) -> list[str]:
        return mpirun_line(
            start.environment,
            start.options,
            start.placed,
            start.folder,
            start.variables,
            remote=start.remote,
            stdin_is_tty=start.stdin_is_tty,
        )

    def splitter(self, pid: int) -> Splitter:
        return MarkSplitter(pid)
