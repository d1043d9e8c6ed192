"""The picture of a job: groups of hosts as DDL sees them, and in each host its sockets, NUMA nodes, cores,
NVLink islands, PCIe switches, GPUs and ranks. One tree of boxes, drawn as text or as SVG.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from ..checks import gpu_checks
from ..checks.diagnostics import speed
from ..checks.gpus import Gpu
from ..checks.inventory import Domain, HostInventory
from ..errors import Code, LaunchError
from ..placement.slots import Slot, ranges
from ..placement.topology_preview import domains_of
from ..plain_text import plain


@dataclass
class Box:
    """kind: group, host, package, node, island, switch, rank or gpu. title and detail: its texts."""

    kind: str
    title: str
    detail: str = ""
    inside: list["Box"] = field(default_factory=list)


# ---- the tree


def boxes(topology: Mapping[str, Any], slots: Sequence[Slot], facts: Mapping[str, HostInventory]) -> Box:
    """The tree of a job. topology: as DDL gives it."""
    tiers = list(topology["tiers"])
    groups = iter(topology["groups"])

    def group(tree: Any, tier: int) -> Box:
        entry = next(groups)  # listed in the order in which the tree is walked
        mine = [slots[rank] for rank in entry["ranks"]]
        if tier == 0:
            return _host(plain(entry["name"]), mine, slots, facts)
        name = plain(entry["name"])
        title = name if name.startswith(f"{tiers[tier]} ") else f"{tiers[tier]} {name}".strip()
        detail = f"{_count(len(tree), tiers[tier - 1])}, {_count(len(mine), 'rank')}"
        if len(tree) > 1:
            detail += _link(tiers[tier - 1], topology["links"][tier])
        return Box("group", title, detail, [group(part, tier - 1) for part in tree])

    return group(topology["tree"], len(tiers) - 1)


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 'es' if name.endswith(('s', 'x', 'ch')) else 's'}"


def _link(member: str, link: Mapping[str, Any]) -> str:
    figures = []
    if link["bandwidth_mbit"] is not None:
        figures.append(speed(round(link["bandwidth_mbit"])))
    if link["latency_us"] is not None:
        figures.append(f"{link['latency_us']:g} us")
    return f", each {member} linked by {', '.join(figures)}" if figures else ""


def _host(name: str, mine: Sequence[Slot], slots: Sequence[Slot], facts: Mapping[str, HostInventory]) -> Box:
    """A host, or a part of one where -mode divides hosts: with its ranks, and what they sit on."""
    host = mine[0].host
    inventory = facts.get(host)
    title = (
        f"host {host}"
        if name in ("", host) or (inventory and inventory.name == name)
        else f"host {host}, {name}"
    )
    if inventory is None:
        return Box("host", title, "not looked at", [_rank(slot) for slot in mine])
    details = []
    if inventory.interface:
        details.append(f"{inventory.interface.name} {speed(inventory.interface.speed_mbit)}".strip())
    details += [*inventory.fabrics, inventory.cpu]
    drawing = _HostDrawing(inventory, mine, [slot for slot in slots if slot.host == host])
    return Box("host", title, ", ".join(filter(None, details)), drawing.parts())


#: A package, and a node in it; None: several of its nodes.
_Seat = tuple[int, int | None]


class _HostDrawing:
    """What is in a host's box. mine: the ranks to draw; everyone: all of the host."""

    def __init__(self, inventory: HostInventory, mine: Sequence[Slot], everyone: Sequence[Slot]) -> None:
        self._inventory, self._mine = inventory, mine
        self._whole = len(mine) == len(everyone)
        assigned = {_key(slot.gpu) for slot in everyone if slot.gpu}
        report = inventory.gpu_report
        usable = report.usable if report else inventory.gpus
        self._free = [gpu for gpu in usable if self._whole and _key(gpu) not in assigned]
        self._packages = {domain.node: domain.package for domain in inventory.domains}
        seats: dict[int, set[_Seat | None]] = {}
        for slot in mine:
            if slot.gpu:
                seats.setdefault(slot.gpu.island, set()).add(self._seat_of(slot))
        for gpu in self._free:
            seats.setdefault(gpu.island, set()).add(self._seat_of_free(gpu))
        # An island within one part of the host is drawn there, another one beside the parts.
        self._local = {island for island, them in seats.items() if len(them) == 1 and None not in them}
        below = [gpu.switch for gpu in usable if gpu.switch]
        self._switches = {switch for switch in below if below.count(switch) > 1}

    def parts(self) -> list[Box]:
        inventory = self._inventory
        children = self._islands()
        packages: dict[int, list[Domain]] = {}
        for domain in inventory.domains:
            packages.setdefault(domain.package, []).append(domain)
        used = [domain for slot in self._mine for domain in domains_of(inventory, slot.cores)]
        for package, nodes in packages.items():
            visible = [node for node in nodes if self._whole or node in used]
            if visible:
                children.append(self._package(package, visible))
        children += [_rank(slot) for slot in self._mine if self._seat_of(slot) is None]
        return [*children, *(_gpu(gpu) for gpu in self._free if self._seat_of_free(gpu) is None)]

    # ---- where things are

    def _seat_of(self, slot: Slot) -> _Seat | None:
        parts = domains_of(self._inventory, slot.cores) if slot.cores else []
        if len({part.package for part in parts}) != 1:
            return None
        return parts[0].package, parts[0].node if len(parts) == 1 else None

    def _seat_of_free(self, gpu: Gpu) -> _Seat | None:
        return (self._packages[gpu.node], gpu.node) if gpu.node in self._packages else None

    # ---- boxes

    def _islands(self) -> list[Box]:
        """Boxes of the islands that no single part of the host holds."""
        report = self._inventory.gpu_report
        islands = report.islands() if report and self._whole else []
        return [
            Box("island", f"NVLink island {island[0].island}", gpu_checks.island_text(island))
            for island in islands
            if island[0].island not in self._local
        ]

    def _package(self, package: int, nodes: Sequence[Domain]) -> Box:
        """A processor socket. Ranks that sit on cores of several nodes are the socket's."""
        label = f"socket {package}" if package >= 0 else "processors"
        children = []
        for node in nodes:
            title = f"NUMA node {node.node}" if node.node >= 0 else "memory"
            children.append(Box("node", title, _cores(node.cores), self._seated((package, node.node))))
        if len(children) == 1:
            only = children[0]
            return Box("package", f"{label}, {only.title}", only.detail, only.inside)
        cores = _cores([core for node in nodes for core in node.cores])
        return Box("package", label, cores, [*children, *self._seated((package, None))])

    def _seated(self, seat: _Seat) -> list[Box]:
        """Ranks, and GPUs without one, in a part of the host: by island, or by PCIe switch."""
        occupants = [(slot.gpu, _rank(slot)) for slot in self._mine if self._seat_of(slot) == seat]
        occupants += [(gpu, _gpu(gpu)) for gpu in self._free if self._seat_of_free(gpu) == seat]
        children: list[Box] = []
        groups: dict[str, Box] = {}
        for gpu, box in occupants:
            group = self._group_of(gpu) if gpu else None
            if group is None:
                children.append(box)
                continue
            if group.title not in groups:
                groups[group.title] = group
                children.append(group)
            groups[group.title].inside.append(box)
        return children

    def _group_of(self, gpu: Gpu) -> Box | None:
        report = self._inventory.gpu_report
        if report and gpu.island >= 0 and gpu.island in self._local:
            island = next(island for island in report.islands() if island[0].island == gpu.island)
            return Box("island", f"NVLink island {gpu.island}", gpu_checks.island_text(island))
        if gpu.switch in self._switches:
            return Box("switch", f"PCIe switch {gpu.switch}")
        return None


def _key(gpu: Gpu) -> str:
    return gpu.uuid or gpu.bus


def _cores(cores: Sequence[int]) -> str:
    return f"core{'' if len(cores) == 1 else 's'} {ranges(cores)}"


def _rank(slot: Slot) -> Box:
    details = [_cores(slot.cores) if slot.cores else "not bound"]
    if slot.gpu:
        details.append(f"{_numbered(slot.gpu)} {slot.gpu.model} at {slot.gpu.bus}")
        if slot.gpu.nics:
            details.append(f"near {' and '.join(slot.gpu.nics)}")
    return Box("rank", f"rank {slot.rank}", ", ".join(details))


def _gpu(gpu: Gpu) -> Box:
    return Box("gpu", _numbered(gpu), f"{gpu.model} at {gpu.bus}, no rank")


def _numbered(gpu: Gpu) -> str:
    return f"GPU {gpu.number}" if gpu.number >= 0 else "GPU"


# ---- text


def as_text(box: Box) -> str:
    return "\n".join(_lines(box, "", ""))


def _lines(box: Box, first: str, rest: str) -> Iterator[str]:
    yield f"{first}{box.title}: {box.detail}" if box.detail else f"{first}{box.title}"
    for at, part in enumerate(box.inside):
        last = at + 1 == len(box.inside)
        yield from _lines(part, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


# ---- SVG

_GAP = 8
_LINE = 16
_CHARACTER = 7.6
_COLOURS = {
    "group": "#f4f4f2",
    "host": "#dfe8f2",
    "package": "#ffffff",
    "node": "#eef3e6",
    "rank": "#ffd9a0",
    "gpu": "#d9d9d9",
    "island": "#e4d9ee",
    "switch": "#f0e8dc",
}
#: Columns in which parts are laid out, by the kind of what they are in; others: one below the other.
_COLUMNS = {"group": 4, "host": 1, "package": 4, "node": 2, "island": 2, "switch": 2}


@dataclass
class _Drawn:
    width: float
    height: float
    shapes: list[str]


def as_svg(box: Box) -> str:
    """The boxes in each other, as wide as they need."""
    drawn = _draw(box)
    width, height = drawn.width + 2 * _GAP, drawn.height + 2 * _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="DejaVu Sans, sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{_moved(drawn, _GAP, _GAP)}\n</svg>\n'
    )


def write_svg(box: Box, path: str) -> None:
    try:
        Path(path).write_text(as_svg(box), encoding="utf-8")
    except OSError as error:
        raise LaunchError(
            Code.FOLDER,
            f"the picture cannot be written: {error.strerror}",
            f"in -topology-picture {path}",
            "name a file in a folder that exists and that you may write to",
        ) from error


def _moved(drawn: _Drawn, x: float, y: float) -> str:
    return f'<g transform="translate({x:.1f} {y:.1f})">\n' + "\n".join(drawn.shapes) + "\n</g>"


def _draw(box: Box) -> _Drawn:
    lines = [(box.title, "bold")] + [
        (piece, "normal") for piece in box.detail.replace(" at ", ", ").split(", ") if piece
    ]
    if box.kind in ("group", "package"):
        lines = [(box.title, "bold")] + ([(box.detail, "normal")] if box.detail else [])
    width = max(len(text) for text, _ in lines) * _CHARACTER + 2 * _GAP
    height = float(_GAP + len(lines) * _LINE)
    shapes = [
        f'<text x="{_GAP}" y="{_GAP + at * _LINE + 11}" font-weight="{weight}">{escape(text)}</text>'
        for at, (text, weight) in enumerate(lines)
    ]
    columns = _COLUMNS.get(box.kind, 1)
    parts = [_draw(part) for part in box.inside]
    for at in range(0, len(parts), columns):
        row = parts[at : at + columns]
        height += _GAP
        x = float(_GAP)
        for part in row:
            shapes.append(_moved(part, x, height))
            x += part.width + _GAP
        width = max(width, x)
        height += max(part.height for part in row)
    height += _GAP
    frame = (
        f'<rect width="{width:.1f}" height="{height:.1f}" rx="4" fill="{_COLOURS[box.kind]}" '
        f'stroke="#808890"><title>{escape(box.title)}</title></rect>'
    )
    return _Drawn(width, height, [frame, *shapes])
