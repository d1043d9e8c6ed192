"""Programs that start processes on many hosts: Open MPI's mpirun, and the schedulers' own.

Each is one file: its line, how it marks the ranks' output, and what it says when a rank fails. None starts a
process itself.
"""

from .base import Launcher, Start
from .flux import Flux
from .jsrun import Jsrun
from .mpirun import Mpirun
from .srun import Srun

LAUNCHERS: dict[str, type[Launcher]] = {launcher.name: launcher for launcher in (Mpirun, Srun, Jsrun, Flux)}


def choose(name: str | None) -> Launcher:
    """The launcher of -launcher; the option's values are checked where the command line is read."""
    return LAUNCHERS[name or Mpirun.name]()


__all__ = ["LAUNCHERS", "Launcher", "Start", "choose"]
