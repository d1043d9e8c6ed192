"""The GPUs of a host as a job sees them: what gpu_probe.py told, checked, and what follows from it.

From links, bridges and nodes follow the NVLink islands, the PCIe switches and each GPU's nearest network
devices; from CUDA_VISIBLE_DEVICES the GPUs that ranks use, in the order in which their programs number them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..plain_text import plain

#: Lists of CUDA_VISIBLE_DEVICES that say "none"; the last is Slurm's.
_NOTHING = ("", "-1", "NoDevFiles")
#: Parts of a way on the bus, from the processor: its host bridge and a root port. What follows is a switch.
_ROOT_PARTS = 2
#: A compute mode of NVML: one process at a time has the GPU.
_EXCLUSIVE, _PROHIBITED = 3, 2


@dataclass(frozen=True)
class Gpu:
    """bus: its place on the PCI bus. node: the NUMA node it is attached to, -1 where that is not known.

    number: CUDA's, in the order of the bus, among those that the job may use. island: number of the group
    that NVLink joins, -1 where it is in none. peers: by their bus GPUs at the other end of its NVLinks, and
    how many links lead there. switch_links: NVLinks to NVSwitches. links_down: that there are, and carry
    nothing. switch: the PCIe switch above it. nics: devices of the fabric that are nearest, as `mlx5_0:1`;
    empty where all are equally near. part_of: UUID of the GPU that this is a MIG device of.
    """

    bus: str
    model: str
    node: int
    uuid: str = ""
    number: int = -1
    memory_bytes: int = 0
    island: int = -1
    peers: tuple[tuple[str, int], ...] = ()
    switch_links: int = 0
    links_down: int = 0
    switch: str = ""
    pcie: str = ""
    nics: tuple[str, ...] = ()
    part_of: str = ""
    exclusive: bool = False

    @property
    def place(self) -> str:
        """DDL_RANK_GPU of its rank: `0000:1b:00.0/0`, without `/0` where it is in no island."""
        return f"{self.bus}/{self.island}" if self.island >= 0 else self.bus

    @property
    def links(self) -> int:
        """Its NVLinks to other GPUs, directly or through NVSwitches."""
        return self.switch_links + sum(count for _, count in self.peers)


@dataclass(frozen=True)
class Nic:
    """port: of a device of the fabric, 0 for a plain network interface. rate_mbit: 0 where it is unknown."""

    name: str
    port: int
    rate_mbit: int
    bus: str
    path: tuple[str, ...]
    node: int


@dataclass(frozen=True)
class GpuReport:
    """What a host says of its GPUs.

    usable: by this job, in the order of the bus. chosen: that ranks use, in the order in which they number
    them. visible: CUDA_VISIBLE_DEVICES; visible_problem: what is wrong with it. on_bus: GPUs that the bus
    shows. closed: that the job is kept from. broken: what NVML says of others. driver: its version; cuda: the
    version that it can do, as 12020. nvml: ok, absent, failed or late; said: its words.
    """

    usable: tuple[Gpu, ...]
    chosen: tuple[Gpu, ...]
    visible: str | None
    visible_problem: str
    on_bus: int
    closed: int
    broken: tuple[str, ...]
    driver: str | None
    cuda: int
    nvml: str
    said: str
    nics: tuple[Nic, ...]

    def islands(self) -> list[list[Gpu]]:
        """GPUs by island, whole GPUs only."""
        by_number: dict[int, list[Gpu]] = {}
        for gpu in self.usable:
            if gpu.island >= 0:
                by_number.setdefault(gpu.island, []).append(gpu)
        return [by_number[number] for number in sorted(by_number)]


# ---- what the probe told


def parse(answer: Any, nodes: Mapping[int, int] | None = None) -> GpuReport | None:
    """The report of a probe's answer; None: nothing of NVIDIA's is there. nodes: NUMA node of each CPU.
    Raises KeyError, TypeError, ValueError or AttributeError where it is no such answer.
    """
    if answer is None:
        return None
    on_bus = {str(entry["bus"]): entry for entry in answer["gpus"]}
    network = tuple(map(_nic, answer["nics"]))
    nvml = answer["nvml"]
    state = str(nvml["state"])
    driver = answer["driver"]
    closed, broken, cuda = 0, [], 0
    if state == "ok":
        driver = nvml["driver"] or driver
        cuda = int(nvml["cuda"])
        entries = []
        for entry in nvml["gpus"]:
            if entry.get("closed"):
                closed += 1
            elif "problem" in entry:
                broken.append(plain(entry["problem"]))
            else:
                entries.append({**on_bus.get(str(entry["bus"]), {}), **entry})
    else:
        # the driver's own files name the GPUs that it drives
        entries = [entry for entry in answer["gpus"] if entry["model"] and driver is not None]
    entries.sort(key=lambda entry: str(entry["bus"]))
    usable = _with_islands(
        [_gpu(entry, number, nodes or {}) for number, entry in enumerate(entries)], entries
    )
    usable = [replace(gpu, nics=nearest(on_bus.get(gpu.bus, {}), gpu.node, network)) for gpu in usable]
    # CUDA counts a GPU that it may not use, too.
    prohibited = {gpu.bus for gpu, entry in zip(usable, entries, strict=True) if _mode(entry) == _PROHIBITED}
    broken += [f"GPU {bus}: compute mode prohibited" for bus in sorted(prohibited)]
    devices = [
        part
        for gpu, entry in zip(usable, entries, strict=True)
        if gpu.bus not in prohibited
        for part in _parts(gpu, entry)
    ]
    visible = answer["visible"]
    chosen, problem = choose(devices, None if visible is None else plain(visible))
    return GpuReport(
        usable=tuple(devices),
        chosen=tuple(chosen),
        visible=None if visible is None else plain(visible),
        visible_problem=problem,
        on_bus=len(on_bus),
        closed=closed,
        broken=tuple(broken),
        driver=None if driver is None else plain(driver),
        cuda=cuda,
        nvml=state if state in ("ok", "absent", "failed", "late") else "failed",
        said=plain(str(nvml.get("said", ""))),
        nics=network,
    )


def _nic(entry: Mapping[str, Any]) -> Nic:
    path = tuple(plain(part) for part in entry["path"])
    return Nic(
        plain(entry["name"]),
        int(entry["port"]),
        int(entry["rate"]),
        plain(entry["bus"]),
        path,
        int(entry["node"]),
    )


def _gpu(entry: Mapping[str, Any], number: int, nodes: Mapping[int, int]) -> Gpu:
    path = [plain(part) for part in entry.get("path", ())]
    node = int(entry.get("node", -1))
    if node < 0:
        node = _node_of_cpus(str(entry.get("cpus", "")), nodes)
    width = int(entry.get("width", 0))
    return Gpu(
        bus=plain(entry["bus"]),
        model=plain(entry["model"]),
        node=node,
        uuid=plain(entry["uuid"]),
        number=number,
        memory_bytes=int(entry.get("memory", 0)),
        switch=path[_ROOT_PARTS] if len(path) > _ROOT_PARTS + 1 else "",
        pcie=f"{plain(entry['most_speed'])} x{width}" if width and entry.get("most_speed") else "",
        exclusive=_mode(entry) == _EXCLUSIVE,
    )


def _mode(entry: Mapping[str, Any]) -> int:
    return int(entry.get("mode", 0))


def _node_of_cpus(listed: str, nodes: Mapping[int, int]) -> int:
    """The node that all CPUs near a device belong to, where there are other nodes; -1: there is none."""
    near: set[int] = set()
    for piece in filter(None, listed.split(",")):
        low, _, high = piece.partition("-")
        near |= set(range(int(low), int(high or low) + 1))
    near_nodes = {nodes[cpu] for cpu in near if cpu in nodes}
    return near_nodes.pop() if len(near_nodes) == 1 and len(set(nodes.values())) > 1 else -1


def _with_islands(gpus: Sequence[Gpu], entries: Sequence[Mapping[str, Any]]) -> list[Gpu]:
    """The GPUs with their links and the numbers of their islands."""
    pairs = list(zip(gpus, entries, strict=True))
    # NVLink does not serve a GPU that is divided into MIG devices, or that may not be used.
    whole = {gpu.bus for gpu, entry in pairs if entry.get("parts") is None and _mode(entry) != _PROHIBITED}
    linked = [_links(gpu, entry, whole) if gpu.bus in whole else gpu for gpu, entry in pairs]
    group = list(range(len(linked)))

    def join(a: int, b: int) -> None:
        low, high = sorted((group[a], group[b]))
        group[:] = [low if number_of == high else number_of for number_of in group]

    at = {gpu.bus: number for number, gpu in enumerate(linked)}
    switched = [number for number, gpu in enumerate(linked) if gpu.switch_links]
    for number, gpu in enumerate(linked):
        for bus, _ in gpu.peers:
            join(number, at[bus])
    for number in switched[1:]:
        join(switched[0], number)
    islands = sorted({number_of for number_of in group if group.count(number_of) > 1})
    return [
        replace(gpu, island=islands.index(number_of)) if number_of in islands else gpu
        for gpu, number_of in zip(linked, group, strict=True)
    ]


def _links(gpu: Gpu, entry: Mapping[str, Any], whole: set[str]) -> Gpu:
    peers: dict[str, int] = {}
    switched = down = 0
    for link in entry.get("links", ()):
        if not link["active"]:
            down += 1
        elif link["bus"] in whole and link["bus"] != gpu.bus:
            peers[link["bus"]] = peers.get(link["bus"], 0) + 1
        elif link["to"] == "switch":
            switched += 1
    return replace(gpu, peers=tuple(sorted(peers.items())), switch_links=switched, links_down=down)


def _parts(gpu: Gpu, entry: Mapping[str, Any]) -> list[Gpu]:
    """The MIG devices of a GPU that is divided into such; else the GPU itself."""
    parts = entry.get("parts")
    if parts is None:
        return [gpu]
    return [
        replace(gpu, uuid=plain(part["uuid"]), model=plain(part["model"]), memory_bytes=0, part_of=gpu.uuid)
        for part in parts
    ]


# ---- near


def nearest(device: Mapping[str, Any], node: int, network: Sequence[Nic]) -> tuple[str, ...]:
    """Devices of the fabric that are nearer to a device than others are. Empty where all are equally far."""
    fabric = [nic for nic in network if nic.port]
    path = [str(part) for part in device.get("path", ())]
    near = {nic.name: _closeness(path, node, nic) for nic in fabric}
    most = max(near.values(), default=0)
    if most == 0 or min(near.values()) == most:
        return ()
    return tuple(f"{nic.name}:{nic.port}" for nic in fabric if near[nic.name] == most)


def _closeness(path: Sequence[str], node: int, nic: Nic) -> int:
    """0: at another NUMA node; 1: at the same; 2: below the same host bridge; more: at common switches."""
    common = 0
    for mine, its in zip(path, nic.path, strict=False):
        if mine != its:
            break
        common += 1
    if common:
        return 1 + common
    return 1 if node >= 0 and nic.node == node else 0


# ---- CUDA_VISIBLE_DEVICES


def in_order(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Islands together, else in the order of the bus."""
    first: dict[int, int] = {}
    for at, gpu in enumerate(gpus):
        first.setdefault(gpu.island, at)
    keys = [(first[gpu.island] if gpu.island >= 0 else at, at) for at, gpu in enumerate(gpus)]
    return [gpu for _, gpu in sorted(zip(keys, gpus, strict=True), key=lambda pair: pair[0])]


def choose(usable: Sequence[Gpu], visible: str | None) -> tuple[list[Gpu], str]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, in its order, and what is wrong with it. Of a wrong list
    those before the first error, as CUDA does.

    None: all, islands together. Numbers are those of the order of the bus; names may be shortened; -1 ends
    the list.
    """
    if visible is None:
        return in_order(usable), ""
    if visible.strip() in _NOTHING:
        return [], f"CUDA_VISIBLE_DEVICES={visible.strip()} hides all GPUs" if visible.strip() else (
            "CUDA_VISIBLE_DEVICES is empty, which hides all GPUs"
        )
    chosen: list[Gpu] = []
    whole = sorted({gpu.number for gpu in usable})
    for word in map(str.strip, visible.split(",")):
        if word == "-1":
            break
        device = _named(word, usable)
        if isinstance(device, str):
            has = f"the job has GPUs {whole[0]} to {whole[-1]}" if whole else "there is no GPU"
            return chosen, f"CUDA_VISIBLE_DEVICES={visible}: {device} ({has})"
        if device in chosen:
            return (
                chosen,
                f"CUDA_VISIBLE_DEVICES={visible} names {word} twice, and CUDA then sees no GPU at all",
            )
        chosen.append(device)
    return chosen, ""


def _named(word: str, usable: Sequence[Gpu]) -> Gpu | str:
    """The GPU of this name or number, or why there is none."""
    if word.isascii() and word.isdecimal():
        # of a divided GPU, CUDA takes the first device
        matches = [gpu for gpu in usable if gpu.number == int(word)][:1]
    else:
        matches = [gpu for gpu in usable if word and gpu.uuid.startswith(word)]
    if len(matches) == 1:
        return matches[0]
    return f"{word!r} fits several GPUs" if matches else f"{word!r} is none of them"
