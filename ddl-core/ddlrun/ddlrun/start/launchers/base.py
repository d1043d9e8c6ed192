"""What ddlrun needs to know of a program that starts processes."""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from ...checks.inventory import HostInventory
from ...command_line.options import Options
from ...environment import Environment
from ...errors import Code, LaunchError
from ...hosts.host_list import HostList
from ...placement.slots import Placement
from .. import rendezvous
from ..launcher_messages import LauncherMessages
from .labels import LabelSplitter


@dataclass(frozen=True)
class Start:
    """A job to start.

    facts: of the hosts that were looked at. folder: of this start, where files of the placement lie.
    variables: the ranks' environment. remote: some ranks are on other hosts. stdin_is_tty: standard input
    is a terminal.
    """

    environment: Environment
    options: Options
    placed: Placement
    facts: Mapping[str, HostInventory]
    folder: Path
    variables: Mapping[str, str]
    remote: bool
    stdin_is_tty: bool

    @property
    def even(self) -> int | None:
        """Ranks on each host where all have the same number."""
        counts = set(self.placed.counts.values())
        return counts.pop() if len(counts) == 1 else None

    def program_words(self) -> list[str]:
        """The end of the line: what -mpiarg adds, and the program."""
        program = rendezvous.wrapped(self.options.program, self.environment)
        return [*self.options.launcher_words(), *program]

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        try:
            path.write_text(text)
        except OSError as error:
            raise LaunchError(
                Code.FOLDER,
                f"cannot write {name}: {error.strerror}",
                str(self.folder),
                "make room, or set TMPDIR to another folder",
            ) from error
        return path


class Splitter(Protocol):
    """Splits what the launcher writes into pieces with their rank; None is the launcher itself."""

    def feed(self, data: bytes, last: bool = False) -> Iterator[tuple[int | None, bytes]]: ...


class Launcher(ABC):
    """One way to start processes. An instance serves one start."""

    name: ClassVar[str]
    #: A signal that ends it ends the ranks too, without the time to end by themselves.
    kills_at_once: ClassVar[bool] = False
    #: Its scheduler binds ranks where ddlrun does not know the cores.
    binds: ClassVar[bool] = False

    def check(self, hosts: HostList, environment: Mapping[str, str] = os.environ) -> None:
        """Raises LaunchError where this launcher cannot start a job from here."""
        return  # the plain ones can anywhere

    @abstractmethod
    def line(self, start: Start) -> list[str]:
        """The words that start the job. Writes the files they name."""

    def variables(self, start: Start) -> dict[str, str]:
        """The launcher's own environment."""
        return dict(start.variables)

    def ask_ranks(self, variables: Mapping[str, str], log: Callable[[str], None]) -> bool:
        """Send SIGTERM to the ranks of the start with these variables by its own means. False: it cannot."""
        return False

    @abstractmethod
    def splitter(self, pid: int) -> Splitter:
        """For one stream of the launcher with this process id."""

    def messages(self) -> LauncherMessages:
        """Listens to what the launcher says of ranks that fail."""
        return LauncherMessages()


class SchedulerLauncher(Launcher):
    """A scheduler's own, inside a job. It labels the ranks' lines, and Open MPI finds its options in the
    environment.
    """

    #: The variable that shows that a job of its scheduler is around.
    job_variable: ClassVar[str]
    job_remedy: ClassVar[str]
    binds = True

    def check(self, hosts: HostList, environment: Mapping[str, str] = os.environ) -> None:
        if shutil.which(self.name, path=environment.get("PATH")) is None:
            raise LaunchError(
                Code.NO_LAUNCHER,
                f"{self.name} was not found",
                "on PATH",
                f"load the module that brings {self.name}, or leave -launcher {self.name} out",
            )
        if not environment.get(self.job_variable):
            raise LaunchError(
                Code.NO_LAUNCHER,
                f"{self.name} starts processes in a job of its scheduler only, and there is none around",
                f"in -launcher {self.name}",
                self.job_remedy,
            )

    def variables(self, start: Start) -> dict[str, str]:
        variables = dict(start.variables)
        if start.options.tcp:
            variables |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm,tcp"}
        return variables

    def splitter(self, pid: int) -> Splitter:
        return LabelSplitter()
