"""A run as a page: verdicts, figures and pictures. Also the part of the report that is about GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import plotly.graph_objects as go

from ..allreduce.sizes import show_rate, show_seconds, show_size
from ..common.page import BLUE, GREY, LAYOUT, RED, STYLE, behaviour, plot, scripts
from .checks import FAILED, PASSED

_LAYOUT: dict[str, Any] = {**LAYOUT, "height": 380}
_CLASSES = {PASSED: "good", FAILED: "bad"}


def page(document: dict[str, Any]) -> str:
    """One HTML file that needs no network."""
    body = section(document)
    script = scripts() if 'class="plot"' in body else behaviour()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>ddl-gpu-check: {escape(document['verdict'])}</title>\n<style>{STYLE}</style></head>\n"
        '<body>\n<a class="skip" href="#main">Skip to the verdict</a>\n<main id="main" tabindex="-1">\n'
        f"<h1>DDL on GPUs: {escape(document['verdict'])}</h1>\n{body}\n</main>\n{script}\n</body></html>\n"
    )


def section(document: dict[str, Any], heading: str = "h2") -> str:
    """The body of the page, to which its style and scripts belong (common.page). heading: of a check."""
    gpus = ", ".join(escape(name) for name in document["gpus"]) or "no GPU"
    machine = document["machine"]
    versions = [
        f"driver for CUDA {escape(document['driver_cuda'])}" if document["driver_cuda"] else "no driver",
        f"NCCL {escape(document['nccl'])}" if document["nccl"] else "no NCCL",
    ]
    parts = [
        f'<p class="soft">{gpus}; {", ".join(versions)}; {escape(str(machine["processor"]))}, '
        f"{int(machine['cores'])} cores. {escape(document['time'])}"
        f"{', short run (--quick)' if document['quick'] else ''}.</p>",
        _verdicts(document["checks"]),
    ]
    for check in document["checks"]:
        shown = _FIGURES.get(check["name"])
        if shown and check["figures"]:
            parts.append(f"<{heading}>{escape(check['title'])}</{heading}>")
            for part in shown(check["figures"]):
                parts.append(plot(part) if isinstance(part, go.Figure) else part)
    return "\n".join(parts)


def _verdicts(checks: list[dict[str, Any]]) -> str:
    rows = "\n".join(
        f'<tr><td>{escape(one["title"])}</td><td class="{_CLASSES.get(one["verdict"], "soft")}">'
        f"{escape(one['verdict'])}</td><td>{escape(one['reason'])}</td>"
        f'<td class="n">{show_seconds(one["seconds"])}</td></tr>'
        for one in checks
    )
    return _framed(
        "Every check with its verdict",
        '<tr><th scope="col">check</th><th scope="col">verdict</th><th scope="col">why</th>'
        f'<th scope="col" class="n">time</th></tr>\n{rows}',
    )


def _framed(caption: str, rows: str) -> str:
    """A table that scrolls by itself where the window is narrow."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption>{rows}\n</table></div>"
    )


def _table(caption: str, headings: list[str], rows: list[list[str]]) -> str:
    head = "".join(f'<th scope="col" class="n">{escape(one)}</th>' for one in headings)
    body = "\n".join(
        "<tr>" + "".join(f'<td class="n">{escape(one)}</td>' for one in row) + "</tr>" for row in rows
    )
    return _framed(caption, f"<tr>{head}</tr>\n{body}")


def _copies(figures: dict[str, Any]) -> Iterator[str | go.Figure]:
    rates = figures["bytes_per_second"]
    names = {
        "to_device": "to the GPU",
        "to_host": "to the host",
        "both": "each way, both at once",
        "within": "within the GPU",
    }
    yield _table(
        "Copies between the host and the GPU",
        ["copies of " + show_size(figures["block"]), "rate"],
        [[title, show_rate(rates[name])] for name, title in names.items()],
    )


def _values(figures: dict[str, Any]) -> Iterator[str | go.Figure]:
    for one in figures.get("runs", [figures]):
        if one["nccl"]:
            way = f"NCCL {one['nccl']}"
        else:
            way = ("CUDA IPC" if one["ipc"] else "the host's memory") + f" ({one['why_not_nccl']})"
        yield (
            f"<p>{int(one['cases'])} calls of {int(one['ranks'])} ranks on {int(one['gpus'])} GPU(s) by "
            f"{escape(way)}: "
            f"{escape(', '.join(one['types']))}; {escape(', '.join(one['ops']))}. Compared with numpy; all "
            "ranks have the same bits.</p>"
        )


def _staged(figures: dict[str, Any]) -> Iterator[str | go.Figure]:
    rows = figures["rows"]
    yield _table(
        "All-reduce of buffers staged in the host's memory",
        ["buffer of each rank", "time", "algbw", "busbw", "through the link, each way", "share of the link"],
        [
            [
                show_size(row["bytes"]),
                show_seconds(row["median"]),
                show_rate(row["algbw"]),
                show_rate(row["busbw"]),
                show_rate(row["each_way"]),
                f"{row['share_of_link']:.2f}",
            ]
            for row in rows
        ],
    )
    figure = go.Figure()
    sizes = [show_size(row["bytes"]) for row in rows]
    figure.add_scatter(
        x=sizes,
        y=[row["each_way"] for row in rows],
        name=f"DDL, {figures['ranks']} ranks",
        line={"color": BLUE},
    )
    for name, title, dash in (
        ("both", "link, both ways at once", "dot"),
        ("to_host", "link, one way", "dash"),
    ):
        figure.add_hline(
            y=figures["link_bytes_per_second"][name],
            line={"color": GREY, "dash": dash},
            annotation_text=title,
        )
    figure.update_layout(**_LAYOUT, title="Bytes a second between GPU and host, each way")
    figure.update_yaxes(title="B/s", rangemode="tozero", tickformat="~s")
    yield figure


def _ipc_copies(figures: dict[str, Any]) -> Iterator[str | go.Figure]:
    yield _table(
        "Copies between processes",
        ["copies of " + show_size(figures["block"]), "rate"],
        [
            ["from another process's memory", show_rate(figures["bytes_per_second"])],
            ["within one process", show_rate(figures["within_one_process"])],
        ],
    )


def _ipc(figures: dict[str, Any]) -> Iterator[str | go.Figure]:
    yield from _values(figures)
    yield _table(
        "All-reduce by CUDA IPC",
        [
            "buffer of each rank",
            "time",
            "algbw",
            "busbw",
            "read and written by the GPU",
            "share of copies within it",
        ],
        [
            [
                show_size(row["bytes"]),
                show_seconds(row["median"]),
                show_rate(row["algbw"]),
                show_rate(row["busbw"]),
                show_rate(row["moved"]),
                f"{row['share_of_copies']:.2f}",
            ]
            for row in figures["rows"]
        ],
    )


def _overlap(figures: dict[str, Any]) -> Iterator[str | go.Figure]:
    yield _table(
        "Calls and copies, alone and together",
        ["the call alone", "the copies alone", "together"],
        [[show_seconds(one[name]) for name in ("call", "copies", "together")] for one in figures["rounds"]],
    )
    timeline = figures["timeline"]
    figure = go.Figure()
    lanes = [("GPU: copies", RED, [["copy", *span] for span in timeline["copies"]])]
    lanes.append(("DDL: calls", BLUE, timeline["calls"]))
    for lane, colour, spans in lanes:
        figure.add_bar(
            base=[low * 1e3 for _, low, _ in spans],
            x=[(high - low) * 1e3 for _, low, high in spans],
            y=[lane] * len(spans),
            orientation="h",
            marker={"color": colour, "line": {"color": "white", "width": 1}},
            hovertext=[f"{name}: {show_seconds(high - low)}" for name, low, high in spans],
            hoverinfo="text",
            showlegend=False,
        )
    figure.update_layout(**_LAYOUT, title=f"One all-reduce of {show_size(figures['bytes'])} beside copies")
    figure.update_xaxes(title="milliseconds")
    yield figure


def _nccl(figures: dict[str, Any]) -> Iterator[str | go.Figure]:
    cells = {(cell["peer"], cell["bytes"]): cell for cell in figures["cells"]}
    sizes = sorted({size for _, size in cells})
    rows = []
    for size in sizes:
        row = [show_size(size)]
        for peer in ("ddl", "nccl"):
            cell = cells.get((peer, size))
            row += (
                [show_seconds(cell["median"]), show_rate(cell["algbw"]), show_rate(cell["busbw"])]
                if cell
                else ["-"] * 3
            )
        rows.append(row)
    yield _table(
        "All-reduce by size, beside NCCL", ["size", "DDL", "algbw", "busbw", "NCCL", "algbw", "busbw"], rows
    )


def _training(figures: dict[str, Any]) -> Iterator[str | go.Figure]:
    yield (
        f"<p>{int(figures['ranks'])} ranks on {int(figures['gpus'])} GPU(s): steps with exchange "
        f"of gradients keep {figures['kept']:.3f} of the speed of steps without.</p>"
    )


_FIGURES = {
    "copies": _copies,
    "values": _values,
    "staged": _staged,
    "ipc-copies": _ipc_copies,
    "ipc": _ipc,
    "overlap": _overlap,
    "gpus": _values,
    "nccl": _nccl,
    "torch": _training,
    "tensorflow": _training,
}
