"""The variables by which a rank learns of its GPU, and their one form between ddlrun and the rank's host.

All values are worked out here. DDLRUN_GPU_ROWS has rows of assignments with final values, such as
`DDL_LOCAL_GPU=0 DDL_RANK_GPU=0000:1b:00.0/0`: a blank between assignments, a semicolon between rows.
DDLRUN_GPU_ROW_OF_RANK has the number of each rank's row, in the order of the ranks, with commas between:
equal ranks share one. rank_start.py takes the rank's row as it is.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from ..checks.inventory import HostInventory
from ..command_line.options import Options
from ..errors import Code, LaunchError
from ..placement.gpu_use import GpuUse
from ..placement.slots import Placement, Slot

ROWS, ROW_OF_RANK = "DDLRUN_GPU_ROWS", "DDLRUN_GPU_ROW_OF_RANK"
#: Of a job around: they would be taken for those of this one.
OF_A_RANK = (ROWS, ROW_OF_RANK, "DDL_RANK_GPU", "DDL_LOCAL_GPU")
#: Values come from other hosts. Neither separator is among these characters.
_VALUE = re.compile(r"[A-Za-z0-9_.,:/+-]*")
#: Launchers that leave a host's GPUs to its ranks. The others' schedulers choose them.
_LEAVING = ("mpirun", "srun")
#: Options of srun by which Slurm gives each rank GPUs of its own.
_BINDING = ("--gpu", "--gres", "--tres")


def variables(
    placed: Placement, facts: Mapping[str, HostInventory], options: Options, launcher: str, use: GpuUse
) -> dict[str, str]:
    """The variables of a job. Raises LaunchError where a device's name cannot be handed on."""
    binds = any(word.startswith(_BINDING) for word in options.launcher_words())
    if launcher not in _LEAVING or binds or options.rankfile:
        return {}
    if use is GpuUse.NONE:
        return _table([{"CUDA_VISIBLE_DEVICES": ""}] * len(placed.slots))
    if not any(slot.gpu for slot in placed.slots):
        return {}
    slots: dict[str, list[Slot]] = {}
    for slot in placed.slots:
        slots.setdefault(slot.host, []).append(slot)
    with_nics = not (options.tcp or options.interface or "UCX_NET_DEVICES" in os.environ)
    ranks = [rank for name in slots for rank in _of_host(slots[name], facts.get(name), with_nics)]
    return {"CUDA_DEVICE_ORDER": os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), **_table(ranks)}


def in_words(placed: Placement, texts: Mapping[str, str]) -> Iterator[str]:
    """The GPU of each rank, for -v."""
    nics = "UCX_NET_DEVICES=" in texts.get(ROWS, "")
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


def _table(ranks: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The variables of the ranks as rows, and the row of each rank."""
    numbers: dict[str, int] = {}
    rows = [" ".join(f"{name}={_checked(value)}" for name, value in rank.items()) for rank in ranks]
    of_rank = [str(numbers.setdefault(row, len(numbers))) for row in rows]
    return {ROWS: ";".join(numbers), ROW_OF_RANK: ",".join(of_rank)}


def _checked(value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise LaunchError(
            Code.GPU_FAILURE,
            f"{value!r}, a name of a GPU or network device, has characters that no such name has",
            "in what a host reports",
            "see `nvidia-smi -L` and `ls /sys/class/infiniband` there; -gpus none and -tcp do without",
        )
    return value


def _visible(inventory: HostInventory | None) -> str | None:
    """CUDA_VISIBLE_DEVICES of a host's ranks; None where they see these GPUs in this order anyway."""
    report = inventory.gpu_report if inventory else None
    if inventory is None or report is None or not inventory.gpus or report.nvml != "ok":
        # Without NVIDIA's library nobody knows which GPUs the job may use, and so how CUDA counts them.
        return None
    numbers = [gpu.number for gpu in inventory.gpus]
    if report.visible is None and numbers == list(range(len(numbers))):
        return None
    return ",".join(map(str, numbers))


def _of_host(
    slots: Sequence[Slot], inventory: HostInventory | None, with_nics: bool
) -> Iterator[dict[str, str]]:
    """The variables of each rank of a host."""
    # They see the GPUs in the order of the ranks.
    seen = list(dict.fromkeys(slot.gpu for slot in slots))
    # CUDA shows a program one part of a GPU and nothing else.
    divided = any(gpu.part_of for gpu in inventory.gpus) if inventory else False
    visible = None if divided else _visible(inventory)
    for slot in slots:
        values = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        if gpu := slot.gpu:
            if divided and gpu.uuid:
                values["CUDA_VISIBLE_DEVICES"] = gpu.uuid
            values |= {"DDL_LOCAL_GPU": "0" if divided else str(seen.index(gpu)), "DDL_RANK_GPU": gpu.place}
            if with_nics and gpu.nics:
                values["UCX_NET_DEVICES"] = ",".join(gpu.nics)
        yield values
