"""What ddlrun tells each rank of its GPU, in variables that rank_environment.sh takes apart on the rank's
host.

The hosts' parts are separated by semicolons, in the order of their ranks; where all are alike there is one.
DDLRUN_VISIBLE: CUDA_VISIBLE_DEVICES of a host's ranks, `=` where theirs stays as it is. DDLRUN_GPUS: of each
rank, with commas between, `NUMBER/BUS/ISLAND/NICS/UUID`: which of the GPUs that it sees is its own, where
that is, the NVLink island it is in, the fabric's devices near it with + between, and, where it must see its
own alone, its UUID.
"""

import os
from collections.abc import Iterator, Mapping, Sequence

from ..checks.inventory import HostInventory
from ..command_line.options import Options
from ..placement.gpu_use import GpuUse
from ..placement.slots import Placement, Slot

#: What goes to every host.
EXPORTED = ("CUDA_DEVICE_ORDER", "DDLRUN_VISIBLE", "DDLRUN_GPUS")
#: Of a job around: they would be taken for those of this one.
OF_A_RANK = ("DDLRUN_VISIBLE", "DDLRUN_GPUS", "DDL_RANK_GPU", "DDL_LOCAL_GPU")
_AS_IT_IS = "="
#: Launchers that leave a host's GPUs to its ranks. The others' schedulers choose them.
_LEAVING = ("mpirun", "srun")
#: Options of srun by which Slurm gives each rank GPUs of its own.
_BINDING = ("--gpu", "--gres", "--tres")


def variables(
    placed: Placement, facts: Mapping[str, HostInventory], options: Options, launcher: str, use: GpuUse
) -> dict[str, str]:
    """The variables of EXPORTED for a job."""
    binds = any(word.startswith(_BINDING) for word in options.launcher_words())
    if launcher not in _LEAVING or binds or options.rankfile:
        return {}
    if use is GpuUse.NONE:
        return {"DDLRUN_VISIBLE": ""}
    slots: dict[str, list[Slot]] = {}
    for slot in placed.slots:
        slots.setdefault(slot.host, []).append(slot)
    if not any(slot.gpu for slot in placed.slots):
        return {}
    with_nics = not (options.tcp or options.interface or "UCX_NET_DEVICES" in os.environ)
    gpus = [_of_host(host_slots, with_nics) for host_slots in slots.values()]
    texts = {
        "DDLRUN_VISIBLE": _joined([_visible(facts.get(name)) for name in slots]),
        "DDLRUN_GPUS": _joined(gpus),
    }
    return {"CUDA_DEVICE_ORDER": os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), **texts}


def in_words(placed: Placement, texts: Mapping[str, str]) -> Iterator[str]:
    """What each rank is told, for -v."""
    ranks = texts.get("DDLRUN_GPUS", "").replace(";", ",").split(",")
    nics = any(rank.split("/")[3] for rank in ranks if rank)
    for host in placed.counts:
        assignments = [
            f"rank {slot.rank} {slot.gpu.bus}"
            + (f" by {'+'.join(slot.gpu.nics)}" if nics and slot.gpu.nics else "")
            for slot in placed.slots
            if slot.host == host and slot.gpu
        ]
        if assignments:
            yield f"GPUs of {host}: {', '.join(assignments)}"
    if nics:
        yield "UCX_NET_DEVICES names each rank's nearest network devices, as none was set"


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(set(parts)) == 1 else ";".join(parts)


def _visible(inventory: HostInventory | None) -> str:
    """The list of a host, where it is not what its ranks see anyway."""
    report = inventory.gpu_report if inventory else None
    if inventory is None or report is None or not inventory.gpus or report.nvml != "ok":
        # Without NVIDIA's library nobody knows which GPUs the job may use, and so how CUDA counts them.
        return _AS_IT_IS
    if any(gpu.part_of for gpu in inventory.gpus):
        return _AS_IT_IS  # each rank is told its own
    numbers = [gpu.number for gpu in inventory.gpus]
    if report.visible is None and numbers == list(range(len(numbers))):
        return _AS_IT_IS
    return ",".join(map(str, numbers))


def _of_host(slots: Sequence[Slot], with_nics: bool) -> str:
    return ",".join(map(lambda slot: _of_rank(slot, slots, with_nics), slots))


def _of_rank(slot: Slot, slots: Sequence[Slot], with_nics: bool) -> str:
    gpu = slot.gpu
    if gpu is None:
        return ""
    island = str(gpu.island) if gpu.island >= 0 else ""
    nics = "+".join(gpu.nics) if with_nics else ""
    if any(other.gpu is not None and other.gpu.part_of for other in slots):
        # CUDA shows a program one part of a GPU and nothing else.
        return "/".join(["0", gpu.bus, island, nics, gpu.uuid])
    return "/".join([str(_number(slot, slots)), gpu.bus, island, nics, ""])


def _number(slot: Slot, slots: Sequence[Slot]) -> int:
    """Which of the GPUs that the ranks of a host see a rank has: they see them in the order of the ranks."""
    seen = list(dict.fromkeys(other.gpu for other in slots))
    return seen.index(slot.gpu)
