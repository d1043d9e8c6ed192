"""A run as a page: verdicts, figures and pictures. Also the part of the report that is about GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import plotly.graph_objects as go

from ..allreduce.sizes import show_rate, show_seconds, show_size
from .checks import FAILED, PASSED

_STYLE = """
  :root { --ink: #161616; --soft: #525252; --line: #e0e0e0; --paper: #ffffff; --tile: #f4f4f4; --good: #198038; --bad: #da1e28; }
  body { font-family: system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto; max-width: 62rem; padding: 1.5rem; line-height: 1.45; }
  h1 { font-weight: 600; margin-bottom: .2rem; } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line); padding-bottom: .3rem; }
  .soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
  table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
  td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
"""  # noqa: E501
_LAYOUT: dict[str, Any] = {
    "template": "plotly_white",
    "margin": {"l": 60, "r": 20, "t": 50, "b": 50},
    "height": 380,
    "font": {"family": "system-ui, sans-serif"},
    "legend": {"orientation": "h", "y": -0.25},
}
_BLUE, _RED, _GREY = "#0f62fe", "#da1e28", "#a8a8a8"
_CLASSES = {PASSED: "good", FAILED: "bad"}


def page(document: dict[str, Any]) -> str:
    """One HTML file that needs no network."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>ddl-gpu-check: {escape(document['verdict'])}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body>\n<h1>DDL on GPUs: {escape(document['verdict'])}</h1>\n{section(document)}\n</body></html>\n"
    )


def section(document: dict[str, Any], with_script: bool = True, heading: str = "h2") -> str:
    """The body of the page. with_script: Plotly's script is inlined; once in a page is enough. heading: of a
    check."""
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
                if isinstance(part, go.Figure):
                    parts.append(
                        part.to_html(
                            full_html=False, include_plotlyjs=with_script, config={"displayModeBar": False}
                        )
                    )
                    with_script = False
                else:
                    parts.append(part)
    return "\n".join(parts)


def _verdicts(checks: list[dict[str, Any]]) -> str:
    rows = "\n".join(
        f'<tr><td>{escape(one["title"])}</td><td class="{_CLASSES.get(one["verdict"], "soft")}">'
        f"{escape(one['verdict'])}</td><td>{escape(one['reason'])}</td>"
        f'<td class="n">{show_seconds(one["seconds"])}</td></tr>'
        for one in checks
    )
    return (
        f'<table><tr><th>check</th><th>verdict</th><th>why</th><th class="n">time</th></tr>\n{rows}\n</table>'
    )


def _table(headings: list[str], rows: list[list[str]]) -> str:
    head = "".join(f'<th class="n">{escape(one)}</th>' for one in headings)
    body = "\n".join(
        "<tr>" + "".join(f'<td class="n">{escape(one)}</td>' for one in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>\n{body}\n</table>"


def _copies(figures: dict[str, Any]) -> Iterator[str | go.Figure]:
    rates = figures["bytes_per_second"]
    names = {
        "to_device": "to the GPU",
        "to_host": "to the host",
        "both": "each way, both at once",
        "within": "within the GPU",
    }
    yield _table(
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
        line={"color": _BLUE},
    )
    for name, title, dash in (
        ("both", "link, both ways at once", "dot"),
        ("to_host", "link, one way", "dash"),
    ):
        figure.add_hline(
            y=figures["link_bytes_per_second"][name],
            line={"color": _GREY, "dash": dash},
            annotation_text=title,
        )
    figure.update_layout(**_LAYOUT, title="Bytes a second between GPU and host, each way")
    figure.update_yaxes(rangemode="tozero")
    yield figure


def _ipc_copies(figures: dict[str, Any]) -> Iterator[str | go.Figure]:
    yield _table(
        ["copies of " + show_size(figures["block"]), "rate"],
        [
            ["from another process's memory", show_rate(figures["bytes_per_second"])],
            ["within one process", show_rate(figures["within_one_process"])],
        ],
    )


def _ipc(figures: dict[str, Any]) -> Iterator[str | go.Figure]:
    yield from _values(figures)
    yield _table(
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
        ["the call alone", "the copies alone", "together"],
        [[show_seconds(one[name]) for name in ("call", "copies", "together")] for one in figures["rounds"]],
    )
    timeline = figures["timeline"]
    figure = go.Figure()
    lanes = [("GPU: copies", _RED, [["copy", *span] for span in timeline["copies"]])]
    lanes.append(("DDL: calls", _BLUE, timeline["calls"]))
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
    yield _table(["size", "DDL", "algbw", "busbw", "NCCL", "algbw", "busbw"], rows)


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
