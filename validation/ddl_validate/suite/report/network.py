"""Pictures of hosts and links: the all-reduce against the wire, hosts side by side, every measured pair."""

from __future__ import annotations

import statistics

import plotly.graph_objects as go

from ...allreduce.sizes import show_size
from ...common.page import BLUE, GREY, PURPLE, RED, TEAL, Picture, Table, empty_figure
from ..document import Document
from ..model import LOWER, Figure
from .wording import expected, pair, ratio, size_of, with_unit

_COLOURS = (BLUE, PURPLE, TEAL, GREY)
_TITLES = {
    "host.core": "Cores",
    "host.memory": "Memory bandwidth",
    "host.training": "Training without exchange",
    "link.bandwidth": "Bandwidth between hosts",
    "link.latency": "Latency between hosts",
}
_FEW = 8  # hosts whose cells have room for a number


def relative(figures: list[Figure]) -> list[float]:
    """Each figure over the median of all; above 1 is better."""
    median = statistics.median(figure.value for figure in figures)
    return [
        1.0
        if figure.value <= 0 or median <= 0
        else (median / figure.value if figure.better == LOWER else figure.value / median)
        for figure in figures
    ]


def by_name(document: Document) -> dict[str, list[Figure]]:
    named: dict[str, list[Figure]] = {}
    for result in document.results:
        for figure in result.figures:
            named.setdefault(figure.name, []).append(figure)
    return named


def bandwidth(document: Document) -> list[Picture]:
    """Bus bandwidth by size, with what was expected and what the wire gave."""
    named = by_name(document)
    figures = [figure for figure in named.get("allreduce.busbw", []) if size_of(figure) is not None]
    if not figures:
        return []
    drawn = empty_figure(400)
    sizes = sorted({size_of(figure) or 0 for figure in figures})
    rows: list[list[str]] = []
    low: set[int] = set()
    for colour, where in zip(
        _COLOURS * len(figures), dict.fromkeys(figure.where for figure in figures), strict=False
    ):
        curve = sorted(
            (figure for figure in figures if figure.where == where), key=lambda figure: size_of(figure) or 0
        )
        _add_bandwidths(drawn, where, curve, colour)
        for figure in curve:
            if figure.low:
                low.add(len(rows))
            size = show_size(size_of(figure) or 0)
            rows.append(
                [where, size, with_unit(figure.value, figure.unit), expected(figure), ratio(figure.ratio)]
            )
    text = f"{rows[-1][0]}: {rows[-1][2]} at {rows[-1][1]}."
    links = [figure.value for figure in named.get("link.bandwidth", [])]
    if links:
        wire = statistics.median(links)
        drawn.add_scatter(
            x=[show_size(size) for size in sizes],
            y=[wire] * len(sizes),
            name="a link between hosts, measured",
            mode="lines",
            line={"color": GREY, "dash": "dash"},
        )
        text += f" A link between hosts carries {with_unit(wire, 'B/s')}."
    drawn.update_xaxes(
        type="category",
        categoryorder="array",
        categoryarray=[show_size(size) for size in sizes],
        title="size",
    )
    drawn.update_yaxes(title="bus bandwidth, B/s", rangemode="tozero", tickformat="~s")
    return [
        Picture(
            "All-reduce against the wire",
            text,
            Table(
                "Bus bandwidth of the all-reduce, by tier and size",
                ["tier", "size", "measured", "expected", "ratio"],
                rows,
                frozenset((1, 2, 3, 4)),
                frozenset(low),
            ),
            drawn,
            wide=True,
        )
    ]


def _add_bandwidths(drawn: go.Figure, where: str, curve: list[Figure], colour: str) -> None:
    """A tier's curve, beside what was expected at every size."""
    x = [show_size(size_of(figure) or 0) for figure in curve]
    y = [figure.value for figure in curve]
    drawn.add_scatter(x=x, y=y, name=where, mode="lines+markers", line={"color": colour})
    if all(figure.expected for figure in curve):
        drawn.add_scatter(
            x=x,
            y=[figure.expected.value for figure in curve if figure.expected],
            name=f"{where}, expected",
            mode="lines",
            line={"color": colour, "dash": "dot"},
        )


def hosts(document: Document) -> list[Picture]:
    """One small picture for each thing that every host has: its share of the hosts' median."""
    pictures = []
    of_hosts = {name: figures for name, figures in by_name(document).items() if name.startswith("host.")}
    best = _best_links(document)
    for name, figures in of_hosts.items():
        single_hosts = [figure for figure in figures if figure.where.startswith("host ")]
        if single_hosts:
            pictures.append(_dots(_TITLES.get(name, name), single_hosts))
    if best:
        pictures.append(_dots("Link, with the best partner", best))
    return pictures


def _best_links(document: Document) -> list[Figure]:
    """The fastest of each host's pairs: its own link is at least as fast."""
    best: dict[str, Figure] = {}
    for figure in by_name(document).get("link.bandwidth", []):
        for host in pair(figure.where) or ():
            if host not in best or best[host].value < figure.value:
                link = Figure(
                    figure.name, f"host {host}", figure.value, figure.unit, expected=figure.expected
                )
                best[host] = link
    return [best[host] for host in document.hosts if host in best]


def _dots(title: str, figures: list[Figure]) -> Picture:
    drawn = empty_figure(260)
    shares = relative(figures)
    names = [figure.where.removeprefix("host ") for figure in figures]
    for low, name, symbol, colour in ((False, "as expected", "circle", BLUE), (True, "too low", "x", RED)):
        chosen = [number for number, figure in enumerate(figures) if figure.low is low]
        if chosen:
            drawn.add_scatter(
                x=[names[number] for number in chosen],
                y=[shares[number] for number in chosen],
                name=name,
                mode="markers",
                marker={"symbol": symbol, "size": 10 if low else 7, "color": colour},
            )
    drawn.add_hline(y=1, line={"color": GREY, "dash": "dash", "width": 1})
    drawn.update_xaxes(type="category", categoryorder="array", categoryarray=names, nticks=12)
    drawn.update_yaxes(title="share of the median", range=[0, max(1.15, 1.05 * max(shares))])
    worst = min(range(len(figures)), key=shares.__getitem__)
    rows = [
        [name, with_unit(figure.value, figure.unit), expected(figure), f"{share:.2f}"]
        for name, figure, share in zip(names, figures, shares, strict=True)
    ]
    return Picture(
        title,
        f"{len(figures)} hosts; the lowest is {names[worst]} with {shares[worst]:.2f} of the median.",
        Table(
            f"{title} of every host",
            ["host", "measured", "expected", "share of the median"],
            rows,
            frozenset((1, 2, 3)),
            frozenset(number for number, figure in enumerate(figures) if figure.low),
        ),
        drawn,
    )


def pairs(document: Document) -> list[Picture]:
    """Which pairs were measured, and how each compares with the others."""
    pictures = []
    for name in ("link.bandwidth", "link.latency"):
        figures = [figure for figure in by_name(document).get(name, []) if pair(figure.where)]
        if len(figures) < 2:
            continue
        shares = relative(figures)
        order = {host: number for number, host in enumerate(document.hosts)}
        cells: list[list[float | None]] = [[None] * len(order) for _ in order]
        rows: list[list[str]] = []
        low: set[int] = set()
        for figure, share in zip(figures, shares, strict=True):
            host, other = pair(figure.where) or ("", "")
            if host in order and other in order:
                cells[order[host]][order[other]] = cells[order[other]][order[host]] = share
            if figure.low:
                low.add(len(rows))
            row = [figure.where, with_unit(figure.value, figure.unit), expected(figure), f"{share:.2f}"]
            rows.append(row)
        drawn = empty_figure(440)
        texts = [[f"{cell:.2f}" if cell is not None else "" for cell in row] for row in cells]
        drawn.add_heatmap(
            x=document.hosts,
            y=document.hosts,
            z=cells,
            zmin=0,
            zmax=1.2,
            colorscale=[[0, "#b33c00"], [0.45, "#e8a06a"], [0.8, "#a6c8ff"], [1, "#0043ce"]],
            colorbar={"title": {"text": "share of<br>the median"}, "thickness": 12},
            hoverongaps=False,
            hovertemplate="%{y} and %{x}: %{z:.2f}<extra></extra>",
            text=texts,
            texttemplate="%{text}" if len(order) <= _FEW else None,
        )
        drawn.update_xaxes(type="category", nticks=12, showgrid=False)
        drawn.update_yaxes(type="category", nticks=16, showgrid=False, autorange="reversed")
        worst = min(range(len(figures)), key=shares.__getitem__)
        pictures.append(
            Picture(
                _TITLES[name],
                f"{len(figures)} pairs were measured; the lowest, {figures[worst].where}, has "
                f"{shares[worst]:.2f} of the median. Empty cells were not needed.",
                Table(
                    f"{_TITLES[name]}, every measured pair",
                    ["pair", "measured", "expected", "share of the median"],
                    rows,
                    frozenset((1, 2, 3)),
                    frozenset(low),
                ),
                drawn,
            )
        )
    return pictures
