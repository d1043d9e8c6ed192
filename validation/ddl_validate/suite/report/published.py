"""The part of the report that sets published figures beside predictions and beside this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...common.page import BLUE, GREY, Picture, Table, empty_figure
from .. import published
from ..document import Document
from .training import ideal, speeds, title_of
from .words import shown


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
        rows = [[one["what"], one["published"], one["why"], one["source"]] for one in facts["others"]]
        heads = ["run", "published", "not predicted, because", "source"]
        parts.append(Part("Others", "", Table("Published results without a prediction", heads, rows), []))
    return parts


def here(document: Document) -> list[list[str]]:
    """The runs of this validation on the most ranks, as rows."""
    known = speeds(document)
    single = known["single"][0] if "single" in known else None
    rows = []
    for way, figures in known.items():
        last = figures[-1]
        best = ideal(figures, single)[-1]
        if last.scale["ranks"] > 1:
            place = f"{last.where}, {last.scale['ranks']} ranks, {title_of(way)}"
            rows.append(["this run", place, shown(last.value, last.unit), f"{last.value / best:.1%}", ""])
    return rows


def _resnet50(told: dict[str, Any], document: Document) -> Part:
    hosts, gpus = told["hosts"], told["gpus"]
    place = f"{hosts} hosts, {hosts * gpus} GPUs"
    first, last = (told["published"][number] for number in ("1", str(hosts)))
    rows = [
        ["published", f"1 host, {gpus} GPUs", f"{first:.2f} images/s", "", ""],
        ["published", place, f"{last:.2f} images/s", f"{told['efficiency']:.1%}", ""],
    ]
    rows += [
        [
            "predicted",
            f"{place}; {one['network']}",
            f"{one['predicted']:.0f} images/s",
            f"{one['efficiency']:.1%}",
            f"{one['off']:+.1%}",
        ]
        for one in told["rows"]
    ]
    rows += here(document)
    heads = ["", "where", "speed", "efficiency", "off"]
    caption = "tf_cnn_benchmarks: published, predicted, and measured in this run"
    table = Table(caption, heads, rows, frozenset((2, 3, 4)))
    return Part("ResNet-50 on 40 V100", told["source"], table, told["assumptions"])


def _nmt(told: dict[str, Any]) -> Part:
    rows = [
        [
            str(one["gpus"]),
            shown(one["published_s"], "s"),
            shown(one["predicted_s"], "s"),
            "fitted" if one["fitted"] else f"{one['off']:+.1%}",
        ]
        for one in told["rows"]
    ]
    words = told["words"]
    off = words["predicted"] / words["published"] - 1
    rows.append(
        [
            f"{words['gpus']}, words/s",
            f"{words['published']:.0f}",
            f"{words['predicted']:.0f}",
            f"{off:+.1%}",
        ]
    )
    table = Table(
        "NMT, time of a step", ["GPUs", "published", "predicted", "off"], rows, frozenset((0, 1, 2, 3))
    )
    drawn = empty_figure(300)
    gpus = [one["gpus"] for one in told["rows"]]
    for name, key, symbol, colour, dash in (
        ("published", "published_s", "circle", BLUE, "solid"),
        ("predicted", "predicted_s", "square", GREY, "dot"),
    ):
        drawn.add_scatter(
            x=gpus,
            y=[one[key] for one in told["rows"]],
            name=name,
            mode="lines+markers",
            line={"color": colour, "dash": dash},
            marker={"symbol": symbol, "size": 8},
        )
    drawn.update_xaxes(title="GPUs", rangemode="tozero")
    drawn.update_yaxes(title="seconds of a step", rangemode="tozero")
    largest = max(told["rows"], key=lambda one: abs(one["off"]))
    text = f"The largest deviation is {largest['off']:+.1%}, on {largest['gpus']} GPUs."
    return Part(
        "NMT on 16 V100", told["source"], table, told["assumptions"], Picture("NMT", text, table, drawn)
    )


def _summit(told: dict[str, Any]) -> Part:
    rows = [
        [
            str(one["hosts"]),
            str(one["gpus"]),
            shown(one["allreduce_s"], "s"),
            shown(one["step_s"], "s"),
            f"{one['images_per_sec']:.0f}",
            f"{one['efficiency']:.1%}",
            one["bound_by"],
        ]
        for one in told["rows"]
    ]
    heads = ["hosts", "GPUs", "all-reduce", "step", "images/s", "efficiency", "limited by"]
    table = Table("ResNet-50 on Summit, predicted", heads, rows, frozenset(range(6)))
    drawn = empty_figure(300)
    drawn.add_scatter(
        x=[one["gpus"] for one in told["rows"]],
        y=[one["efficiency"] for one in told["rows"]],
        name="predicted efficiency",
        mode="lines+markers",
        line={"color": BLUE},
    )
    drawn.update_xaxes(title="GPUs", type="log")
    drawn.update_yaxes(title="efficiency", range=[0, 1.05], tickformat=".0%")
    last = told["rows"][-1]
    text = f"{last['efficiency']:.1%} on {last['hosts']} hosts with {last['gpus']} GPUs."
    source = f"{told['description']}. Nothing here was measured."
    picture = Picture("Summit", text, table, drawn)
    return Part("Summit, up to 954 hosts", source, table, told["assumptions"], picture)
