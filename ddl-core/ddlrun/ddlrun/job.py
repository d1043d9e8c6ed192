"""A job that is ready to start, as a value."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .command_line.rank_range import RankRange
from .placement.slots import Placement, Slot
from .placement.tiers import Tiers
from .start.launchers import Launcher
from .survey import Survey
from .tasks import plan as task_plan
from .tasks.plan import Task


@dataclass(frozen=True)
class Restart:
    """Which start of a job this is.

    Attributes:
        count: Its number, from 0.
        reason: What ended the start before.
        failures: How many of the starts were for a failure, which -max-restarts limits.
    """

    count: int = 0
    reason: str = ""
    failures: int = 0


@dataclass(frozen=True)
class Job:
    """Everything that is needed to start.

    Attributes:
        survey: The hosts.
        placed: Which rank is where.
        tiers: Nodes, racks and aisles.
        variables: The environment of the launcher.
        line: The launcher's command line.
        folder: Of this start.
        restart: Which start it is.
        launcher: What starts the ranks.
        records: Where the ranks write their flight records.
        np: The range of ranks that the user allows, if any.
        tasks: The tasks of TensorFlow's cluster.
    """

    survey: Survey
    placed: Placement
    tiers: Tiers
    variables: Mapping[str, str]
    line: list[str]
    folder: Path
    restart: Restart
    launcher: Launcher
    records: Path
    np: RankRange | None = None
    tasks: tuple[Task, ...] = ()

    @property
    def remote_hosts(self) -> list[str]:
        """Its hosts besides this machine, in the order of their ranks."""
        return [name for name in self.placed.counts if name not in self.survey.local]

    def plan(self) -> dict[str, Any]:
        """The job as plain data, for people and programs to read."""
        requested = {"np": asdict(self.np)} if self.np else {}
        return {
            **requested,
            "hosts": [
                {"name": name, "ranks": count, "facts": asdict(self.survey.facts[name])}
                if name in self.survey.facts
                else {"name": name, "ranks": count}
                for name, count in self.placed.counts.items()
            ],
            "origin": self.survey.hosts.origin,
            "ranks": [
                {"rank": slot.rank, "host": slot.host, "cores": list(slot.cores), **_gpu_of(slot)}
                for slot in self.placed.slots
            ],
            **task_plan.as_data(self.tasks),
            "bound": self.placed.bound,
            "tiers": {"nodes": self.tiers.nodes, "racks": self.tiers.racks, "aisles": self.tiers.aisles},
            "ddl_options": self.variables.get("DDL_OPTIONS"),
            "command": self.line,
            "folder": str(self.folder),
        }


def _gpu_of(slot: Slot) -> dict[str, Any]:
    if slot.gpu is None:
        return {}
    gpu = slot.gpu
    return {"gpu": {"bus": gpu.bus, "uuid": gpu.uuid, "island": gpu.island, "nics": list(gpu.nics)}}
