"""Folders that look like /sys and /proc/driver/nvidia of real machines, written from a few numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """nodes: for each NUMA node its number, the package it is in, and its cores, each as its CPUs.

    memory_nodes: nodes without processors. cache: cores that share a last-level cache. gpus: place on the bus
    and NUMA node of each.
    """

    nodes: tuple[tuple[int, int, tuple[tuple[int, ...], ...]], ...]
    cache: int
    memory_nodes: tuple[int, ...] = ()
    gpus: tuple[tuple[str, int], ...] = ()
    model: str = ""

    def write(self, folder: Path) -> tuple[Path, Path]:
        """The two folders."""
        sysfs, nvidia = folder / "sys", folder / "nvidia"
        cpus = sysfs / "devices/system/cpu"
        everything = sorted(cpu for _, _, cores in self.nodes for core in cores for cpu in core)
        _put(cpus / "online", _listed(everything))
        for number in self.memory_nodes:
            _put(sysfs / f"devices/system/node/node{number}/cpulist", "")
        for number, package, cores in self.nodes:
            _put(
                sysfs / f"devices/system/node/node{number}/cpulist",
                _listed([c for core in cores for c in core]),
            )
            whole = [c for _, other, there in self.nodes if other == package for core in there for c in core]
            for at, core in enumerate(cores):
                first = at - at % self.cache
                cache = [cpu for one in cores[first : first + self.cache] for cpu in one]
                for cpu in core:
                    topology = cpus / f"cpu{cpu}/topology"
                    _put(topology / "thread_siblings_list", _listed(core))
                    _put(topology / "package_cpus_list", _listed(whole))
                    _put(topology / "physical_package_id", str(package))
                    _put(cpus / f"cpu{cpu}/cache/index3/shared_cpu_list", _listed(cache))
        for number, (bus, node) in enumerate(self.gpus):
            _put(sysfs / f"bus/pci/devices/{bus}/numa_node", str(node))
            told = f"Model: \t\t {self.model}\nIRQ:   \t\t 1{number}\nGPU UUID: \t GPU-{number:08x}-0\n"
            _put(
                nvidia / f"gpus/{bus}/information",
                told + f"Bus Location: \t {bus}\nDevice Minor: \t {number}",
            )
        return sysfs, nvidia


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def _listed(numbers: list[int] | tuple[int, ...]) -> str:
    """As the kernel writes a list: `0-3,8`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def _cores(count: int, cpus_of: Callable[[int], tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    return tuple(cpus_of(core) for core in range(count))


def _ac922(gpus: int) -> Machine:
    """IBM AC922: two POWER9 of 22 cores with 4 threads; the GPUs' memory are NUMA nodes of their own."""
    each = gpus // 2
    nodes = tuple(
        (
            8 * package,
            8 * package,
            _cores(22, lambda c, p=package: tuple(range(88 * p + 4 * c, 88 * p + 4 * c + 4))),
        )
        for package in (0, 1)
    )
    places = [(f"0004:{4 + at:02x}:00.0", 0) for at in range(each)]
    places += [(f"0035:{3 + at:02x}:00.0", 8) for at in range(each)]
    return Machine(nodes, 2, tuple(range(250, 256)), tuple(places), "Tesla V100-SXM2-16GB")


AC922_4 = _ac922(4)
AC922_6 = _ac922(6)

#: NVIDIA DGX A100: two EPYC 7742 of 64 cores with 2 threads, four NUMA nodes each, GPUs at every second one.
DGX_A100 = Machine(
    tuple(
        (node, node // 4, _cores(16, lambda c, n=node: (16 * n + c, 128 + 16 * n + c))) for node in range(8)
    ),
    4,
    gpus=(
        ("0000:07:00.0", 3),
        ("0000:0f:00.0", 3),
        ("0000:47:00.0", 1),
        ("0000:4e:00.0", 1),
        ("0000:87:00.0", 7),
        ("0000:90:00.0", 7),
        ("0000:b7:00.0", 5),
        ("0000:bd:00.0", 5),
    ),
    model="NVIDIA A100-SXM4-40GB",
)

#: NVIDIA DGX H100: two Xeon 8480C of 56 cores with 2 threads.
DGX_H100 = Machine(
    tuple((node, node, _cores(56, lambda c, n=node: (56 * n + c, 112 + 56 * n + c))) for node in range(2)),
    56,
    gpus=tuple(
        (f"0000:{bus}:00.0", int(bus > "80")) for bus in ["1b", "43", "52", "61", "9d", "c3", "d1", "df"]
    ),
    model="NVIDIA H100 80GB HBM3",
)

#: A server whose CPUs are numbered alternately over the sockets, without hyperthreads.
ALTERNATING = Machine(tuple((node, node, _cores(8, lambda c, n=node: (2 * c + n,))) for node in range(2)), 8)

#: A virtual machine of two cores.
VM = Machine(((0, 0, ((0,), (1,))),), 2)
