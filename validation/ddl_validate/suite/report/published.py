"""The part of the report that sets published figures beside predictions and beside this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...common.page import BLUE, GREY, Picture, Table, empty_figure
from .. import published
from ..document import Document
from .training import ideal, speeds, title_of
from .wording import with_unit


@dataclass(frozen=True)
class Part:
    """A published result. source: of the figures; notes: assumptions of the predictions."""

    title: str
    source: str
    table: Table
    notes: list[str]
    picture: Picture | None = None


def section(document: Document) -> list[Part]:
    """What the check `published` of the document has; nothing where it was not made."""
    facts: dict[str, Any] = next(
        (result.facts for result in document.results if result.name == published.NAME), {}
    )
    parts = []
    if "resnet50" in facts:
        parts.append(_resnet50(facts["resnet50"], document))
    if "nmt" in facts:
        parts.append(_nmt(facts["nmt"]))
    if "summit" in facts:
        parts.append(_summit(facts["summit"]))
    if facts.get("others"):
        rows = [
            [result["what"], result["published"], result["why"], result["source"]]
            for result in facts["others"]
        ]
        heads = ["run", "published", "not predicted, because", "source"]
        parts.append(Part("Others", "", Table("Published results without a prediction", heads, rows), []))
    return parts


def measured_rows(document: Document) -> list[list[str]]:
    """The runs of this validation on the most ranks, as rows."""
    curves = speeds(document)
    single = curves["single"][0] if "single" in curves else None
    rows = []
    for way, figures in curves.items():
        last = figures[-1]
        best = ideal(figures, single)[-1]
        if last.scale["ranks"] > 1:
            place = f"{last.where}, {last.scale['ranks']} ranks, {title_of(way)}"
            rows.append(["this run", place, with_unit(last.value, last.unit), f"{last.value / best:.1%}", ""])
    return rows


def _resnet50(facts: dict[str, Any], document: Document) -> Part:
    hosts, gpus = facts["hosts"], facts["gpus"]
    place = f"{hosts} hosts, {hosts * gpus} GPUs"
    first, last = (facts["published"][number] for number in ("1", str(hosts)))
    rows = [
        ["published", f"1 host, {gpus} GPUs", f"{first:.2f} images/s", "", ""],
        ["published", place, f"{last:.2f} images/s", f"{facts['efficiency']:.1%}", ""],
    ]
    rows += [
        [
            "predicted",
            f"{place}; {row['network']}",
            f"{row['predicted']:.0f} images/s",
            f"{row['efficiency']:.1%}",
            f"{row['off']:+.1%}",
        ]
        for row in facts["rows"]
    ]
    rows += measured_rows(document)
    heads = ["", "where", "speed", "efficiency", "off"]
    caption = "tf_cnn_benchmarks: published, predicted, and measured in this run"
    table = Table(caption, heads, rows, frozenset((2, 3, 4)))
    return Part("ResNet-50 on 40 V100", facts["source"], table, facts["assumptions"])


def _nmt(facts: dict[str, Any]) -> Part:
    rows = [
        [
            str(row["gpus"]),
            with_unit(row["published_s"], "s"),
            with_unit(row["predicted_s"], "s"),
            "fitted" if row["fitted"] else f"{row['off']:+.1%}",
        ]
        for row in facts["rows"]
    ]
    throughput = facts["words"]
    off = throughput["predicted"] / throughput["published"] - 1
    rows.append(
        [
            f"{throughput['gpus']}, words/s",
            f"{throughput['published']:.0f}",
            f"{throughput['predicted']:.0f}",
            f"{off:+.1%}",
        ]
    )
    table = Table(
        "NMT, time of a step", ["GPUs", "published", "predicted", "off"], rows, frozenset((0, 1, 2, 3))
    )
    drawn = empty_figure(300)
    gpus = [row["gpus"] for row in facts["rows"]]
    for name, key, symbol, colour, dash in (
        ("published", "published_s", "circle", BLUE, "solid"),
        ("predicted", "predicted_s", "square", GREY, "dot"),
    ):
        drawn.add_scatter(
            x=gpus,
            y=[row[key] for row in facts["rows"]],
            name=name,
            mode="lines+markers",
            line={"color": colour, "dash": dash},
            marker={"symbol": symbol, "size": 8},
        )
    drawn.update_xaxes(title="GPUs", rangemode="tozero")
    drawn.update_yaxes(title="seconds of a step", rangemode="tozero")
    largest = max(facts["rows"], key=lambda row: abs(row["off"]))
    text = f"The largest deviation is {largest['off']:+.1%}, on {largest['gpus']} GPUs."
    return Part(
        "NMT on 16 V100", facts["source"], table, facts["assumptions"], Picture("NMT", text, table, drawn)
    )


def _summit(facts: dict[str, Any]) -> Part:
    rows = [
        [
            str(row["hosts"]),
            str(row["gpus"]),
            with_unit(row["allreduce_s"], "s"),
            with_unit(row["step_s"], "s"),
            f"{row['images_per_sec']:.0f}",
            f"{row['efficiency']:.1%}",
            row["bound_by"],
        ]
        for row in facts["rows"]
    ]
    heads = ["hosts", "GPUs", "all-reduce", "step", "images/s", "efficiency", "limited by"]
    table = Table("ResNet-50 on Summit, predicted", heads, rows, frozenset(range(6)))
    drawn = empty_figure(300)
    drawn.add_scatter(
        x=[row["gpus"] for row in facts["rows"]],
        y=[row["efficiency"] for row in facts["rows"]],
        name="predicted efficiency",
        mode="lines+markers",
        line={"color": BLUE},
    )
    drawn.update_xaxes(title="GPUs", type="log")
    drawn.update_yaxes(title="efficiency", range=[0, 1.05], tickformat=".0%")
    last = facts["rows"][-1]
    text = f"{last['efficiency']:.1%} on {last['hosts']} hosts with {last['gpus']} GPUs."
    source = f"{facts['description']}. Nothing here was measured."
    picture = Picture("Summit", text, table, drawn)
    return Part("Summit, up to 954 hosts", source, table, facts["assumptions"], picture)
