"""The picture of a job: groups of hosts as DDL sees them, and in each host its sockets, NUMA nodes, cores,
GPUs and ranks. One tree of boxes, drawn as text or as SVG.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from ..checks.diagnostics import speed
from ..checks.inventory import Domain, Gpu, HostInventory
from ..errors import Code, LaunchError
from ..placement.slots import Slot, ranges
from ..placement.topology_preview import domains_of
from ..plain_text import plain


@dataclass
class Box:
    """kind: group, host, package, node, rank or gpu. title and detail: its texts."""

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
        told = next(groups)  # listed in the order in which the tree is walked
        mine = [slots[rank] for rank in told["ranks"]]
        if tier == 0:
            return _host(plain(told["name"]), mine, slots, facts)
        name = plain(told["name"])
        title = name if name.startswith(f"{tiers[tier]} ") else f"{tiers[tier]} {name}".strip()
        detail = f"{_count(len(tree), tiers[tier - 1])}, {_count(len(mine), 'rank')}"
        if len(tree) > 1:
            detail += _link(tiers[tier - 1], topology["links"][tier])
        return Box("group", title, detail, [group(part, tier - 1) for part in tree])

    return group(topology["tree"], len(tiers) - 1)


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 'es' if name.endswith(('s', 'x', 'ch')) else 's'}"


def _link(member: str, link: Mapping[str, Any]) -> str:
    told = []
    if link["bandwidth_mbit"] is not None:
        told.append(speed(round(link["bandwidth_mbit"])))
    if link["latency_us"] is not None:
        told.append(f"{link['latency_us']:g} us")
    return f", each {member} linked by {', '.join(told)}" if told else ""


def _host(name: str, mine: Sequence[Slot], slots: Sequence[Slot], facts: Mapping[str, HostInventory]) -> Box:
    """A host, or a part of one where -mode divides hosts: with its ranks, and what they sit on."""
    host = mine[0].host
    there = facts.get(host)
    title = f"host {host}" if name in ("", host) or (there and there.name == name) else f"host {host}, {name}"
    if there is None:
        return Box("host", title, "not looked at", [_rank(slot, None) for slot in mine])
    everyone = [slot for slot in slots if slot.host == host]
    gpus = {}
    if len(there.gpus) >= len(everyone):
        gpus = {slot.rank: (at, there.gpus[at]) for at, slot in enumerate(everyone)}
    details = []
    if there.interface:
        details.append(f"{there.interface.name} {speed(there.interface.speed_mbit)}".strip())
    details += [*there.fabrics, there.cpu]
    box = Box("host", title, ", ".join(filter(None, details)))
    taken: set[int] = set()
    packages: dict[int, list[Domain]] = {}
    for domain in there.domains:
        packages.setdefault(domain.package, []).append(domain)
    whole = len(mine) == len(everyone)
    used = [domain for slot in mine for domain in domains_of(there, slot.cores)]
    for package, nodes in packages.items():
        shown = [node for node in nodes if whole or node in used]
        if shown:
            box.inside.append(_package(package, shown, mine, gpus, there, taken, whole))
    box.inside += [_rank(slot, gpus.get(slot.rank)) for slot in mine if slot.rank not in taken]
    return box


def _package(
    package: int,
    nodes: Sequence[Domain],
    mine: Sequence[Slot],
    gpus: Mapping[int, tuple[int, Gpu]],
    there: HostInventory,
    taken: set[int],
    whole: bool,
) -> Box:
    """A processor socket. Ranks that sit on cores of several nodes are the socket's."""
    label = f"socket {package}" if package >= 0 else "processors"
    made = []
    for node in nodes:
        box = Box("node", f"NUMA node {node.node}" if node.node >= 0 else "memory", _cores(node.cores))
        for slot in mine:
            if slot.cores and set(slot.cores) <= set(node.cores):
                box.inside.append(_rank(slot, gpus.get(slot.rank)))
                taken.add(slot.rank)
        attached = [(at, gpu) for at, gpu in enumerate(there.gpus) if gpu.node == node.node >= 0]
        given = {at for at, _ in gpus.values()}
        box.inside += [_gpu(at, gpu) for at, gpu in attached if whole and at not in given]
        made.append(box)
    if len(made) == 1:
        only = made[0]
        return Box("package", f"{label}, {only.title}", only.detail, only.inside)
    outer = Box("package", label, _cores([core for node in nodes for core in node.cores]), made)
    for slot in mine:
        parts = domains_of(there, slot.cores)
        if slot.cores and slot.rank not in taken and {one.package for one in parts} == {package}:
            outer.inside.append(_rank(slot, gpus.get(slot.rank)))
            taken.add(slot.rank)
    return outer


def _cores(cores: Sequence[int]) -> str:
    return f"core{'' if len(cores) == 1 else 's'} {ranges(cores)}"


def _rank(slot: Slot, gpu: tuple[int, Gpu] | None) -> Box:
    told = [_cores(slot.cores) if slot.cores else "not bound"]
    if gpu:
        told.append(f"GPU {gpu[0]} {gpu[1].model} at {gpu[1].bus}")
    return Box("rank", f"rank {slot.rank}", ", ".join(told))


def _gpu(at: int, gpu: Gpu) -> Box:
    return Box("gpu", f"GPU {at}", f"{gpu.model} at {gpu.bus}, no rank")


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
}
#: Columns in which parts are laid out, by the kind of what they are in; others: one below the other.
_COLUMNS = {"group": 4, "host": 1, "package": 4, "node": 2}


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
