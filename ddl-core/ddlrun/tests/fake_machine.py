"""Folders that look like / of real machines as far as ddlrun looks at them (/sys, /proc/driver/nvidia), and
what NVIDIA's library says on them, written from a few numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "DDLRUN_SYSTEM_ROOT"
DRIVER = "550.54.15"


@dataclass(frozen=True)
class FakeGpu:
    """bus, node: its places. above: the bridges above it, from the host bridge. links: its NVLinks as nvml.c
    reads them. parts: MIG devices. mode: NVML's number of its compute mode.
    """

    bus: str
    node: int
    above: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    mode: int = 0

    def uuid(self) -> str:
        return f"GPU-{self.bus.replace(':', '').replace('.', ''):0>12}-0"


@dataclass(frozen=True)
class FakeNic:
    """A device of the fabric, with one port."""

    name: str
    bus: str
    node: int
    above: tuple[str, ...] = ()
    gbit: int = 100
    state: str = "4: ACTIVE"


@dataclass(frozen=True)
class Machine:
    """nodes: for each NUMA node its number, the package it is in, and its cores, each as its CPUs.

    memory_nodes: nodes without processors. cache: cores that share a last-level cache. driver: version, empty
    where there is none. cuda: that it can do. said: more lines for nvml.c.
    """

    nodes: tuple[tuple[int, int, tuple[tuple[int, ...], ...]], ...]
    cache: int
    memory_nodes: tuple[int, ...] = ()
    gpus: tuple[FakeGpu, ...] = ()
    nics: tuple[FakeNic, ...] = ()
    model: str = ""
    gib: int = 80
    driver: str = DRIVER
    cuda: int = 12040
    said: tuple[str, ...] = field(default=())

    def write(self, folder: Path) -> Path:
        """The folder that stands for /."""
        self._write_processors(folder / "sys")
        self._write_gpus(folder)
        return folder

    def nvml(self) -> str:
        """The description for nvml.c."""
        lines = [f"driver {self.driver}", f"cuda {self.cuda}", *self.said]
        for gpu in self.gpus:
            lines.append(f"gpu 0000{gpu.bus.upper()} {gpu.uuid()} {self.gib << 30} {gpu.mode} {self.model}")
            lines += [f"link {link}" for link in gpu.links]
            lines += [f"mig MIG-{gpu.bus[5:7]}-{at} {name}" for at, name in enumerate(gpu.parts)]
        return "".join(f"{line}\n" for line in lines)

    def _write_processors(self, sysfs: Path) -> None:
        cpus = sysfs / "devices/system/cpu"
        everything = sorted(cpu for _, _, cores in self.nodes for core in cores for cpu in core)
        if everything:
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

    def _write_gpus(self, root: Path) -> None:
        sysfs, nvidia = root / "sys", root / "proc/driver/nvidia"
        if self.driver:
            kernel = f"NVIDIA UNIX x86_64 Kernel Module  {self.driver}  Tue Mar  5 22:23:56 UTC 2024"
            _put(nvidia / "version", f"NVRM version: {kernel}")
        for number, gpu in enumerate(self.gpus):
            place = _device(sysfs, gpu.bus, gpu.above)
            cpus = [c for node, _, cores in self.nodes if node == gpu.node for core in cores for c in core]
            for name, text in (
                ("vendor", "0x10de"),
                ("class", "0x030200"),
                ("numa_node", str(gpu.node)),
                ("local_cpulist", _listed(cpus)),
                ("current_link_speed", "2.5 GT/s PCIe"),
                ("current_link_width", "16"),
                ("max_link_speed", "32.0 GT/s PCIe"),
                ("max_link_width", "16"),
            ):
                _put(place / name, text)
            if not self.driver:
                continue
            told = f"Model: \t\t {self.model}\nIRQ:   \t\t 1{number}\nGPU UUID: \t {gpu.uuid()}\n"
            _put(
                nvidia / f"gpus/{gpu.bus}/information",
                told + f"Bus Location: \t {gpu.bus}\nDevice Minor: \t {number}",
            )
        for nic in self.nics:
            place = _device(sysfs, nic.bus, nic.above)
            _put(place / "numa_node", str(nic.node))
            port = sysfs / "class/infiniband" / nic.name / "ports/1"
            _put(port / "state", nic.state)
            _put(port / "rate", f"{nic.gbit} Gb/sec (4X HDR)")
            (sysfs / "class/infiniband" / nic.name / "device").symlink_to(place)


def _device(sysfs: Path, bus: str, above: tuple[str, ...]) -> Path:
    """The folder of a device of PCI, and the link that leads there."""
    place = (sysfs / "devices").joinpath(*above, bus)
    place.mkdir(parents=True, exist_ok=True)
    link = sysfs / "bus/pci/devices" / bus
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(place)
    return place


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
    sockets = (
        [f"0004:{4 + at:02x}:00.0" for at in range(each)],
        [f"0035:{3 + at:02x}:00.0" for at in range(each)],
    )
    # Six links a GPU, shared by the others of its socket and the POWER9 itself.
    to_each = 6 // each
    gpus = tuple(
        FakeGpu(
            bus,
            node,
            (f"pci{bus[:4]}:00", f"{bus[:4]}:00:00.0"),
            tuple(f"1 gpu 0000{other}" for other in there if other != bus for _ in range(to_each))
            + ("1 npu 00000000:00:00.0",) * to_each,
        )
        for node, there in zip((0, 8), sockets, strict=True)
        for bus in there
    )
    nics = (FakeNic("mlx5_0", "0003:01:00.0", 0), FakeNic("mlx5_3", "0033:01:00.1", 8))
    return Machine(nodes, 2, tuple(range(250, 256)), gpus, nics, "Tesla V100-SXM2-16GB", 16)


AC922_4 = _ac922(4)
AC922_6 = _ac922(6)

#: NVIDIA DGX A100: two EPYC 7742 of 64 cores with 2 threads, four NUMA nodes each, GPUs at every second one.
DGX_A100 = Machine(
    tuple(
        (node, node // 4, _cores(16, lambda c, n=node: (16 * n + c, 128 + 16 * n + c))) for node in range(8)
    ),
    4,
    gpus=tuple(
        FakeGpu(f"0000:{bus}:00.0", node, links=("1 switch 00000000:C1:00.0",) * 12)
        for bus, node in zip(
            ["07", "0f", "47", "4e", "87", "90", "b7", "bd"], [3, 3, 1, 1, 7, 7, 5, 5], strict=True
        )
    ),
    model="NVIDIA A100-SXM4-40GB",
    gib=40,
)


def _below_switch(bus: str, port: int) -> tuple[str, ...]:
    """The bridges above what is at a port of the switch of this bus."""
    root, upper = int(bus, 16) - 4, int(bus, 16) - 3
    switch = f"0000:{upper:02x}:00.0", f"0000:{upper + 1:02x}:{port:02x}.0"
    return (f"pci0000:{root:02x}", f"0000:{root:02x}:01.0", *switch)


_H100_BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")

# NVIDIA DGX H100: two Xeon 8480C of 56 cores with 2 threads, a PCIe switch for each GPU and its network
# device.
DGX_H100 = Machine(
    tuple((node, node, _cores(56, lambda c, n=node: (56 * n + c, 112 + 56 * n + c))) for node in range(2)),
    56,
    gpus=tuple(
        FakeGpu(
            f"0000:{bus}:00.0",
            int(bus > "80"),
            _below_switch(bus, 0),
            tuple(f"1 switch 00000000:C{5 + at % 4}:00.0" for at in range(18)),
        )
        for bus in _H100_BUSES
    ),
    nics=tuple(
        FakeNic(
            f"mlx5_{at}", f"0000:{int(bus, 16) + 1:02x}:00.0", int(bus > "80"), _below_switch(bus, 1), 400
        )
        for at, bus in enumerate(_H100_BUSES)
    ),
    model="NVIDIA H100 80GB HBM3",
)

#: A server whose CPUs are numbered alternately over the sockets, without hyperthreads.
ALTERNATING = Machine(tuple((node, node, _cores(8, lambda c, n=node: (2 * c + n,))) for node in range(2)), 8)

#: A virtual machine of two cores.
VM = Machine(((0, 0, ((0,), (1,))),), 2)

#: A server of two PCIe GPUs without NVLink and one network device, as far as its GPUs go.
TWO_PCIE = Machine(
    tuple((node, node, _cores(8, lambda c, n=node: (8 * n + c,))) for node in range(2)),
    8,
    gpus=tuple(
        FakeGpu(f"0000:{bus}:00.0", node, (f"pci0000:{bus[0]}0", f"0000:{bus[0]}0:01.0"))
        for bus, node in (("17", 0), ("ca", 1))
    ),
    nics=(FakeNic("mlx5_0", "0000:18:00.0", 0, ("pci0000:10", "0000:10:02.0")),),
    model="NVIDIA L40S",
    gib=48,
)

#: Four GPUs in two NVLink pairs across the order of the bus, on two sockets.
CROSSED_PAIRS = Machine(
    TWO_PCIE.nodes,
    8,
    gpus=tuple(
        FakeGpu(f"0000:{bus}:00.0", node, links=(f"1 gpu 00000000:{peer.upper()}:00.0",) * 4)
        for bus, node, peer in (("3b", 0, "b1"), ("5e", 0, "d8"), ("b1", 1, "3b"), ("d8", 1, "5e"))
    ),
    model="NVIDIA A40",
    gib=48,
)
