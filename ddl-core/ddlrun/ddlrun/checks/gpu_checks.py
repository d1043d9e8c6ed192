"""What forbids ranks to use the GPUs of a host, and what is worth knowing of them."""

import re
from collections.abc import Iterator, Mapping

from ..errors import Code, LaunchError
from .gpus import Gpu, GpuReport
from .inventory import HostInventory

#: The oldest driver that runs programs of CUDA 12, and CUDA 12 as the driver counts.
LEAST_DRIVER = (525, 60, 13)
_CUDA_12 = 12000
_LEAST = ".".join(map(str, LEAST_DRIVER))
_WITHOUT = "compute on processors: -gpus none"


def is_too_old(report: GpuReport) -> bool:
    """Whether the driver cannot run programs of CUDA 12. What it says itself counts more than its number:
    NVIDIA's package cuda-compat makes some older ones able to.
    """
    if report.cuda:
        return report.cuda < _CUDA_12
    version = tuple(map(int, re.findall(r"\d+", report.driver or "")))
    return bool(version) and version < LEAST_DRIVER


def cuda_text(version: int) -> str:
    """`12.4` for 12040."""
    return f"{version // 1000}.{version % 1000 // 10}"


def problem(name: str, facts: HostInventory) -> LaunchError | None:
    """Why ranks that need GPUs cannot start on a host; None where they can."""
    where = f"host {name}"
    report = facts.gpu_report
    if report is None or report.driver is None:
        on_bus = report.on_bus if report else 0
        seen = f", though {_count(on_bus, 'GPU')} of NVIDIA are on its bus" if on_bus else ""
        return LaunchError(
            Code.NO_DRIVER,
            f"there is no NVIDIA driver{seen}",
            where,
            f"install driver {_LEAST} or newer there, leave the host out (-exclude), or {_WITHOUT}",
        )
    if is_too_old(report):
        can = f" and can do CUDA {cuda_text(report.cuda)}" if report.cuda else ""
        return LaunchError(
            Code.OLD_DRIVER,
            f"NVIDIA's driver is {report.driver}{can}, and CUDA 12 needs {_LEAST} or newer",
            where,
            f"install a newer driver there, leave the host out (-exclude), or {_WITHOUT}",
        )
    if report.nvml == "absent":
        return LaunchError(
            Code.NO_DRIVER,
            f"driver {report.driver} is there, but not its library libnvidia-ml.so.1",
            where,
            "start a container with --nv (Docker: --gpus all), install the driver's libraries elsewhere, or "
            f"{_WITHOUT}",
        )
    if report.nvml == "failed":
        return LaunchError(
            Code.GPU_FAILURE,
            f"the driver's library fails: {report.said}",
            where,
            "see what `nvidia-smi` says there, and restart the host after an update of its driver; or "
            f"{_WITHOUT}",
        )
    if not report.usable:
        return LaunchError(
            Code.NO_GPU, _why_none(report), where, f"leave the host out (-exclude), or {_WITHOUT}"
        )
    if report.visible_problem:
        return LaunchError(
            Code.VISIBLE_GPUS,
            report.visible_problem,
            where,
            f"name each GPU once, by number, UUID or MIG UUID (`nvidia-smi -L`), or unset it; or {_WITHOUT}",
        )
    return None


def _why_none(report: GpuReport) -> str:
    if report.closed:
        return f"the job may use none of the GPUs there ({report.closed}): ask the scheduler for some"
    if report.broken:
        return f"driver {report.driver} is there, but no GPU works: {report.broken[0]}"
    return f"driver {report.driver} is there, but no GPU"


def crowded(counts: Mapping[str, int], facts: Mapping[str, HostInventory]) -> dict[str, LaunchError]:
    """By name the hosts with more ranks than GPUs, where ranks are not to share these, or cannot."""
    failed = {}
    for name, ranks in counts.items():
        inventory = facts.get(name)
        if inventory is None or ranks <= inventory.accelerators:
            continue
        gpus = _count(inventory.accelerators, "GPU")
        exclusive = [gpu for gpu in inventory.gpus if gpu.exclusive]
        if not inventory.gpus_shared:
            failed[name] = LaunchError(
                Code.SHARED_GPUS,
                f"{ranks} ranks for {gpus}",
                f"host {name}",
                f"lower the ranks there to {inventory.accelerators}, let them share GPUs (-gpus shared), or "
                "use none (-gpus none)",
            )
        elif exclusive:
            failed[name] = LaunchError(
                Code.SHARED_GPUS,
                f"{ranks} ranks are to share {gpus}, and GPU {exclusive[0].bus} serves one process at a time",
                f"host {name}",
                "set its compute mode back (`nvidia-smi -c DEFAULT`), or start fewer ranks",
            )
    return failed


def sharing(counts: Mapping[str, int], facts: Mapping[str, HostInventory]) -> str | None:
    """What is worth knowing where ranks share GPUs."""
    shared = [
        f"{ranks} ranks for {_count(facts[name].accelerators, 'GPU')} on {name}"
        for name, ranks in counts.items()
        if name in facts and facts[name].gpus_shared and ranks > facts[name].accelerators > 0
    ]
    if not shared:
        return None
    more = f", and so on {len(shared) - 1} other hosts" if len(shared) > 1 else ""
    return f"ranks share GPUs, and take turns on them: {shared[0]}{more}"


def warnings(facts: Mapping[str, HostInventory], needed: bool) -> Iterator[tuple[Code, str]]:
    """What does not forbid the start. needed: what would has been said already."""
    for name, inventory in facts.items():
        report = inventory.gpu_report
        if report is None:
            continue
        if report.nvml == "late":
            yield (
                Code.GPU_FAILURE,
                f"NVIDIA's driver on host {name} gave {report.said}: NVLink is not known "
                "(`nvidia-smi -pm 1` keeps a driver awake)",
            )
        for text in report.broken:
            yield Code.GPU_FAILURE, f"a GPU of host {name} is left out: {text}"
        if report.visible_problem and report.usable and report.chosen and not needed:
            yield Code.VISIBLE_GPUS, f"{report.visible_problem}; host {name}"


def nvlink_text(report: GpuReport) -> str:
    """The islands in words."""
    islands = report.islands()
    if not islands:
        return "no GPUs are joined by NVLink"
    return "; ".join(map(island_text, islands))


def island_text(island: list[Gpu]) -> str:
    """`8 GPUs (0-7) by NVSwitch, 18 links each`."""
    return f"{_count(len(island), 'GPU')} ({_numbers(island)}) {_joined(island)}"


def _joined(island: list[Gpu]) -> str:
    links = sorted({gpu.links for gpu in island})
    each = f"{links[0]}" if len(links) == 1 else f"{links[0]} to {links[-1]}"
    if any(gpu.switch_links for gpu in island):
        return f"by NVSwitch, {each} links each"
    pair = sorted({count for gpu in island for _, count in gpu.peers})
    between = f"{pair[0]}" if len(pair) == 1 else f"{pair[0]} to {pair[-1]}"
    return f"by NVLink, {between} link{'' if pair == [1] else 's'} a pair"


def uneven_links(report: GpuReport) -> str | None:
    """GPUs of an island that have fewer links than others of it: where links are down, they have failed."""
    for island in report.islands():
        most = max(gpu.links for gpu in island)
        for gpu in island:
            if gpu.links < most and gpu.links_down:
                return f"GPU {gpu.number} has {gpu.links} of {most} NVLinks, {gpu.links_down} are down"
    return None


def _numbers(island: list[Gpu]) -> str:
    numbers = [gpu.number for gpu in island]
    return (
        f"{numbers[0]}-{numbers[-1]}"
        if numbers == list(range(numbers[0], numbers[-1] + 1))
        else ", ".join(map(str, numbers))
    )


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
