"""The cluster as a picture: racks, hosts, links with their measured share, and what is at fault."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from ...common.page import Table
from ..document import Document
from ..model import Figure, Finding
from .network import by_name
from .wording import FAULTS, pair, with_unit

_WIDE, _ROW, _ROWS = 158, 34, 16  # of a host in the picture; hosts above each other
_BUS, _GAP, _HEAD, _UPLINK = 44, 20, 30, 44
_LINE = 1000  # of racks beside each other
_LOW, _FAIR = 0.5, 0.85


@dataclass(frozen=True)
class Topology:
    """text: what the picture shows, for whoever does not see it; table: the same figures."""

    svg: str
    text: str
    table: Table


@dataclass(frozen=True)
class _Links:
    """Links of hosts and racks: the figure of the best pair, and its share of the expected value.

    Where none is expected, its share of the median.
    """

    hosts: dict[str, tuple[Figure, float]]
    racks: dict[int, tuple[Figure, float]]


def draw(document: Document) -> Topology:
    links = _links(document)
    faults = _faults(document)
    racks = document.racks or [0] * len(document.hosts)
    members = {
        rack: [h for h, r in zip(document.hosts, racks, strict=True) if r == rack]
        for rack in sorted(set(racks))
    }
    with_uplinks = len(members) > 1
    parts: list[str] = []
    at: dict[str, tuple[float, float]] = {}
    x, top, line_height, width = 8.0, 8.0, 0.0, 0.0
    bars: list[tuple[float, float]] = []
    for rack, hosts in members.items():
        columns = -(-len(hosts) // _ROWS)
        rack_wide = columns * (_WIDE + _BUS) + 12
        rack_high = _HEAD + min(len(hosts), _ROWS) * _ROW + 10
        above = _UPLINK if with_uplinks else 0
        if x > 8 and x + rack_wide > _LINE:
            x, top, line_height = 8.0, top + line_height + _GAP, 0.0
        if with_uplinks and (not bars or bars[-1][0] != top):
            bars.append((top, 0.0))
        parts += _rack(
            document, rack, hosts, (x, top + above, rack_wide, rack_high), links, faults, at, with_uplinks
        )
        x += rack_wide + _GAP
        width = max(width, x)
        line_height = max(line_height, above + rack_high)
        if bars:
            bars[-1] = (top, x - _GAP)
    height = top + line_height + 12
    for bar_top, right in bars:
        parts.append(
            f'<rect class="net" x="8" y="{bar_top:.0f}" width="{right - 8:.0f}" height="18" rx="3"/>'
            f'<text x="16" y="{bar_top + 13:.0f}" class="small">network between racks</text>'
        )
    for finding in document.faults:
        ends = pair(finding.where)
        if ends and ends[0] in at and ends[1] in at:
            parts.append(_path(at[ends[0]], at[ends[1]], finding))
    text = _text(document, members, faults)
    svg = (
        f'<svg class="topology" role="img" aria-label="{escape(text)}" viewBox="0 0 {width:.0f} '
        f'{height:.0f}" width="{width:.0f}" height="{height:.0f}">{"".join(parts)}</svg>'
    )
    return Topology(svg, text, _table(document, racks, links, faults))


def _rack(
    document: Document,
    rack: int,
    hosts: list[str],
    box: tuple[float, float, float, float],
    links: _Links,
    faults: dict[str, list[Finding]],
    at: dict[str, tuple[float, float]],
    with_uplinks: bool,
) -> list[str]:
    x, y, wide, high = box
    wrong = faults.get(f"rack {rack}", [])
    uplink = links.racks.get(rack)
    title = f"rack {rack}" if document.racks is not None else "hosts"
    if wrong:
        title = f"✗ {title}: {FAULTS[wrong[0].kind]}"
    parts = []
    if with_uplinks:
        middle = x + 24
        share = uplink[1] if uplink else None
        parts.append(
            f'<path class="link {_class(share)}" d="M{middle:.0f} {y - _UPLINK + 18:.0f}V{y:.0f}"/>'
            + (
                f'<text x="{middle + 8:.0f}" y="{y - 9:.0f}" class="small">{share:.2f}</text>'
                if share is not None
                else ""
            )
        )
    parts.append(
        f'<rect class="rack{" culprit" if wrong else ""}" x="{x:.0f}" y="{y:.0f}" width="{wide:.0f}" '
        f'height="{high:.0f}" rx="4"/><text x="{x + 10:.0f}" y="{y + 20:.0f}" '
        f'class="{"fault" if wrong else "name"}">{escape(title)}</text>'
    )
    for column in range(-(-len(hosts) // _ROWS)):
        shown_hosts = hosts[column * _ROWS : (column + 1) * _ROWS]
        bus = x + 14 + column * (_WIDE + _BUS)
        end = y + _HEAD + (len(shown_hosts) - 1) * _ROW + 14
        parts.append(f'<path class="bus" d="M{bus:.0f} {y + _HEAD:.0f}V{end:.0f}"/>')
        for number, host in enumerate(shown_hosts):
            place = bus, y + _HEAD + number * _ROW
            at[host] = (place[0] + 20 + _WIDE - 12, place[1] + 14)
            parts.append(_host(host, place, links.hosts.get(host), faults.get(f"host {host}", [])))
    return parts


def _host(
    host: str, place: tuple[float, float], link: tuple[Figure, float] | None, wrong: list[Finding]
) -> str:
    bus, y = place
    share = link[1] if link else None
    name = host if len(host) <= 13 else host[:12] + "…"
    number = f"{share:.2f}" if share is not None else ""
    why = "; ".join(finding.text for finding in wrong) or (
        f"best link: {with_unit(link[0].value, link[0].unit)}" if link else "link not measured"
    )
    return (
        f"<g><title>{escape(f'{host}: {why}')}</title>"
        f'<path class="link {_class(share)}" d="M{bus:.0f} {y + 14:.0f}h20"/>'
        f'<rect class="host{" culprit" if wrong else ""}" x="{bus + 20:.0f}" y="{y:.0f}" '
        f'width="{_WIDE - 12}" height="28" rx="3"/>'
        f'<text x="{bus + 27:.0f}" y="{y + 19:.0f}" class="{"fault" if wrong else "name"}">'
        f"{'✗ ' if wrong else ''}{escape(name)}</text>"
        f'<text x="{bus + _WIDE + 3:.0f}" y="{y + 19:.0f}" class="small" text-anchor="end">{number}</text>'
        "</g>"
    )


def _path(start: tuple[float, float], other: tuple[float, float], finding: Finding) -> str:
    """The path between two hosts, drawn because it is at fault."""
    (x1, y1), (x2, y2) = start, other
    out = max(x1, x2) + 26
    middle = 0.75 * out + (x1 + x2) / 8 + 4, (y1 + y2) / 2  # right of the curve
    return (
        f"<g><title>{escape(finding.text)}</title>"
        f'<path class="path" d="M{x1:.0f} {y1:.0f}C{out:.0f} {y1:.0f} {out:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"/>'
        f'<text class="fault" x="{middle[0]:.0f}" y="{middle[1] + 5:.0f}">✗</text></g>'
    )


def _class(share: float | None) -> str:
    if share is None:
        return "unknown"
    return "low" if share < _LOW else "fair" if share < _FAIR else "full"


def _links(document: Document) -> _Links:
    named = by_name(document)
    pairs = named.get("link.bandwidth", [])
    hosts: dict[str, tuple[Figure, float]] = {}
    for figure, share in zip(pairs, _shares(pairs), strict=True):
        for host in pair(figure.where) or (figure.where.removeprefix("host "),):
            if host not in hosts or hosts[host][1] < share:
                hosts[host] = (figure, share)
    ups = [figure for name, figures in named.items() if name.startswith("rack.") for figure in figures]
    racks = {}
    for figure, share in zip(ups, _shares(ups), strict=True):
        parts = figure.where.split()
        if len(parts) == 2 and parts[0] == "rack" and parts[1].isdigit():
            racks[int(parts[1])] = (figure, share)
    return _Links(hosts, racks)


def _shares(figures: list[Figure]) -> Iterable[float]:
    if not figures:
        return []
    median = statistics.median(figure.value for figure in figures)
    return [
        figure.ratio if figure.ratio is not None else figure.value / median if median > 0 else 0.0
        for figure in figures
    ]


def _faults(document: Document) -> dict[str, list[Finding]]:
    faults: dict[str, list[Finding]] = {}
    for finding in document.faults:
        faults.setdefault(finding.where, []).append(finding)
        for host in finding.hosts:
            if finding.where != f"host {host}":
                faults.setdefault(f"host {host}", []).append(finding)
    return faults


def _text(document: Document, members: dict[int, list[str]], faults: dict[str, list[Finding]]) -> str:
    count = f"{len(document.hosts)} host{'s' if len(document.hosts) != 1 else ''}"
    if len(members) > 1:
        count += f" in {len(members)} racks"
    drawn = [finding for finding in document.faults if finding.where.startswith(("host", "rack"))]
    if not drawn:
        return f"{count}; no host, link or rack is at fault."
    return (
        f"{count}. At fault: "
        + "; ".join(f"{finding.where} ({FAULTS[finding.kind]})" for finding in drawn)
        + "."
    )


def _table(document: Document, racks: list[int], links: _Links, faults: dict[str, list[Finding]]) -> Table:
    rows: list[list[str]] = []
    low: set[int] = set()
    for rack in sorted(links.racks):
        figure, share = links.racks[rack]
        wrong = faults.get(f"rack {rack}", [])
        if wrong:
            low.add(len(rows))
        why = ", ".join(FAULTS[finding.kind] for finding in wrong)
        rows.append([f"rack {rack}", "", with_unit(figure.value, figure.unit), f"{share:.2f}", why])
    for host, rack in zip(document.hosts, racks, strict=True):
        link = links.hosts.get(host)
        wrong = faults.get(f"host {host}", []) + [
            finding for finding in document.faults if host in (pair(finding.where) or ())
        ]
        if wrong:
            low.add(len(rows))
        number = [with_unit(link[0].value, link[0].unit), f"{link[1]:.2f}"] if link else ["", ""]
        why = ", ".join(FAULTS[finding.kind] for finding in wrong)
        rows.append([f"host {host}", str(rack) if document.racks is not None else "", *number, why])
    heads = ["place", "rack", "best link", "share of the expected", "at fault"]
    return Table("Hosts and racks with their links", heads, rows, frozenset((1, 2, 3)), frozenset(low))
