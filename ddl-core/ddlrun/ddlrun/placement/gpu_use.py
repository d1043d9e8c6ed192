"""Whether ranks use GPUs, and how many a GPU serves: -gpus, or what the environment is built for."""

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum

from ..checks import gpu_checks
from ..checks.inventory import HostInventory
from ..checks.preflight import Report
from ..command_line.options import Options
from ..environment import Environment


class GpuUse(Enum):
    """OWN: each rank has a GPU of its own. SHARED: a GPU may serve several ranks. NONE: they use none. FOUND:
    GPUs decide how many ranks a host gets where nobody said it, and need not be there.
    """

    OWN = "own"
    SHARED = "shared"
    NONE = "none"
    FOUND = "found"

    @property
    def needed(self) -> bool:
        """Whether a host without GPUs cannot take part."""
        return self in (GpuUse.OWN, GpuUse.SHARED)


def of(options: Options, environment: Environment) -> GpuUse:
    """What -gpus says; else a GPU for each rank where the environment is built for GPUs."""
    if options.gpus:
        return GpuUse(options.gpus)
    return GpuUse.OWN if environment.is_for_gpus else GpuUse.FOUND


def as_used(inventory: HostInventory, use: GpuUse) -> HostInventory:
    """A host's facts with those of its GPUs that ranks use."""
    if use is GpuUse.NONE:
        return replace(inventory, gpus=())
    return replace(inventory, gpus_shared=use is GpuUse.SHARED)


def all_as_used(facts: Mapping[str, HostInventory], use: GpuUse) -> dict[str, HostInventory]:
    return {name: as_used(inventory, use) for name, inventory in facts.items()}


def settle(report: Report, use: GpuUse) -> None:
    """Bring this use of GPUs into what the checks found: hosts without the GPUs that are needed cannot take
    part.
    """
    for name, inventory in report.facts.items():
        report.facts[name] = as_used(inventory, use)
        if use.needed and name not in report.failed and (error := gpu_checks.problem(name, inventory)):
            report.failed[name] = error
