"""A run as a page: verdicts, figures and pictures. Also the part of the report that is about GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup

from ..allreduce.sizes import show_rate, show_seconds, show_size
from ..common.page import (
    BLUE,
    GREY,
    LAYOUT,
    RED,
    Chart,
    Element,
    Section,
    Table,
    paragraph,
    render_sections,
)
from .checks import FAILED, PASSED

_LAYOUT: dict[str, Any] = {**LAYOUT, "height": 380}
_CLASSES = {PASSED: "good", FAILED: "bad"}


def page(document: dict[str, Any]) -> str:
    """One HTML file that needs no network."""
    verdict = document["verdict"]
    return render_sections(
        f"ddl-gpu-check: {verdict}", f"DDL on GPUs: {verdict}", sections(document), "the verdict"
    )


def sections(document: dict[str, Any]) -> list[Element | Section]:
    """What stands below the page's heading: the GPUs, every verdict, and a section for each check."""
    gpus = ", ".join(document["gpus"]) or "no GPU"
    driver = f"driver for CUDA {document['driver_cuda']}" if document["driver_cuda"] else "no driver"
    nccl = f"NCCL {document['nccl']}" if document["nccl"] else "no NCCL"
    machine = document["machine"]
    short = ", short run (--quick)" if document["quick"] else ""
    text = (
        f"{gpus}; {driver}, {nccl}; {machine['processor']}, {machine['cores']} cores. "
        f"{document['time']}{short}."
    )
    parts: list[Element | Section] = [paragraph(text, "soft"), _verdicts(document["checks"])]
    for check in document["checks"]:
        describe = _FIGURES.get(check["name"])
        if describe and check["figures"]:
            parts.append(Section(check["title"], list(describe(check["figures"]))))
    return parts


def _verdicts(checks: list[dict[str, Any]]) -> Table:
    rows = [
        [
            check["title"],
            Markup('<span class="{}">{}</span>').format(
                _CLASSES.get(check["verdict"], "soft"), check["verdict"]
            ),
            check["reason"],
            show_seconds(check["seconds"]),
        ]
        for check in checks
    ]
    return Table("Every check with its verdict", ["check", "verdict", "why", "time"], rows, frozenset((3,)))


def _table(caption: str, headings: list[str], rows: list[list[str]]) -> Table:
    return Table(caption, headings, rows, frozenset(range(len(headings))))


def _rates(caption: str, block: int, rates: dict[str, float]) -> Table:
    rows = [[title, show_rate(rate)] for title, rate in rates.items()]
    return _table(caption, ["copies of " + show_size(block), "rate"], rows)


def _times(caption: str, rows: list[dict[str, Any]], rate: tuple[str, str], share: tuple[str, str]) -> Table:
    """Times by size. rate, share: names of these figures and their headings."""
    headings = ["buffer of each rank", "time", "algbw", "busbw", rate[1], share[1]]
    cells = [
        [
            *(show_size(row["bytes"]), show_seconds(row["median"])),
            *(show_rate(row[name]) for name in ("algbw", "busbw", rate[0])),
            f"{row[share[0]]:.2f}",
        ]
        for row in rows
    ]
    return _table(caption, headings, cells)


def _copies(figures: dict[str, Any]) -> Iterator[Element]:
    rates = figures["bytes_per_second"]
    names = {
        "to_device": "to the GPU",
        "to_host": "to the host",
        "both": "each way, both at once",
        "within": "within the GPU",
    }
    titled = {title: rates[name] for name, title in names.items()}
    yield _rates("Copies between the host and the GPU", figures["block"], titled)


def _values(figures: dict[str, Any]) -> Iterator[Element]:
    for run in figures.get("runs", [figures]):
        if run["nccl"]:
            method = f"NCCL {run['nccl']}"
        else:
            method = ("CUDA IPC" if run["ipc"] else "the host's memory") + f" ({run['why_not_nccl']})"
        yield paragraph(
            f"{run['cases']} calls of {run['ranks']} ranks on {run['gpus']} GPU(s) by {method}: "
            f"{', '.join(run['types'])}; {', '.join(run['ops'])}. Compared with numpy; all ranks have the "
            "same bits."
        )


def _staged(figures: dict[str, Any]) -> Iterator[Element]:
    rows = figures["rows"]
    yield _times(
        "All-reduce of buffers staged in the host's memory",
        rows,
        ("each_way", "through the link, each way"),
        ("share_of_link", "share of the link"),
    )
    figure = go.Figure()
    sizes = [show_size(row["bytes"]) for row in rows]
    title = f"DDL, {figures['ranks']} ranks"
    figure.add_scatter(x=sizes, y=[row["each_way"] for row in rows], name=title, line={"color": BLUE})
    link = figures["link_bytes_per_second"]
    for name, title, dash in (
        ("both", "link, both ways at once", "dot"),
        ("to_host", "link, one way", "dash"),
    ):
        figure.add_hline(y=link[name], line={"color": GREY, "dash": dash}, annotation_text=title)
    figure.update_layout(**_LAYOUT, title="Bytes a second between GPU and host, each way")
    figure.update_yaxes(title="B/s", rangemode="tozero", tickformat="~s")
    yield Chart(figure)


def _ipc_copies(figures: dict[str, Any]) -> Iterator[Element]:
    yield _rates(
        "Copies between processes",
        figures["block"],
        {
            "from another process's memory": figures["bytes_per_second"],
            "within one process": figures["within_one_process"],
        },
    )


def _ipc(figures: dict[str, Any]) -> Iterator[Element]:
    yield from _values(figures)
    yield _times(
        "All-reduce by CUDA IPC",
        figures["rows"],
        ("moved", "read and written by the GPU"),
        ("share_of_copies", "share of copies within it"),
    )


def _overlap(figures: dict[str, Any]) -> Iterator[Element]:
    yield _table(
        "Calls and copies, alone and together",
        ["the call alone", "the copies alone", "together"],
        [
            [show_seconds(times[name]) for name in ("call", "copies", "together")]
            for times in figures["rounds"]
        ],
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
    yield Chart(figure)


def _nccl(figures: dict[str, Any]) -> Iterator[Element]:
    cells = {(cell["peer"], cell["bytes"]): cell for cell in figures["cells"]}
    sizes = sorted({size for _, size in cells})
    rows = []
    for size in sizes:
        row = [show_size(size)]
        for peer in ("ddl", "nccl"):
            cell = cells.get((peer, size))
            if cell:
                row += [show_seconds(cell["median"]), show_rate(cell["algbw"]), show_rate(cell["busbw"])]
            else:
                row += ["-"] * 3
        rows.append(row)
    yield _table(
        "All-reduce by size, beside NCCL", ["size", "DDL", "algbw", "busbw", "NCCL", "algbw", "busbw"], rows
    )


def _training(figures: dict[str, Any]) -> Iterator[Element]:
    yield paragraph(
        f"{figures['ranks']} ranks on {figures['gpus']} GPU(s): steps with exchange of gradients keep "
        f"{figures['kept']:.3f} of the speed of steps without."
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
