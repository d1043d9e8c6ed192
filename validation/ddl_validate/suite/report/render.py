"""The page: what the template shows, gathered from a document and its history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from ...common.page import STYLE, behaviour, scripts
from ..document import Document
from ..history import LAST, History, compare, good_before
from ..model import CheckResult, Figure, Finding, Kind, Status
from . import network, published, runs, training
from .picture import Table
from .topology import Topology, draw
from .words import FAULTS, duration, expected, place, ratio, sentence, shown

_SEVERITY = {kind: number for number, kind in enumerate(Kind)}
_STATES = {
    Status.PASSED: ("✓ passed", "good"),
    Status.FAILED: ("✗ failed", "bad"),
    Status.BROKEN: ("! gave no result", "bad"),
    Status.SKIPPED: ("– skipped", "soft"),
}


@dataclass(frozen=True)
class Group:
    """Figures of one name. command: where all are measured by the same; commands: else, one each."""

    name: str
    low: int
    table: Table
    command: str
    commands: list[str]


@dataclass(frozen=True)
class Record:
    """What the flight recorder says of a failed run. page: where its own page lies."""

    check: str
    lines: list[str]
    page: str


def render(document: Document, history: History) -> str:
    """One HTML file: verdict first, then pictures with tables, then every figure."""
    regressions = compare(document, history)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"duration": duration, "sentence": sentence}
    findings = sorted(document.findings, key=lambda finding: _SEVERITY[finding.kind])
    text = environment.get_template("page.html.j2").render(
        document=document,
        style=Markup(STYLE),
        headline=headline(document, findings),
        findings=findings,
        faults=FAULTS,
        drain=list(dict.fromkeys(host for finding in findings for host in finding.hosts)),
        unfinished=[
            result for result in document.results if result.status in (Status.SKIPPED, Status.BROKEN)
        ],
        states=_STATES,
        topology=_topology(document),
        training=training.pictures(document),
        bandwidth=network.bandwidth(document),
        hosts=network.hosts(document),
        pairs=network.pairs(document),
        history=history,
        regressions=regressions,
        compared=len(good_before(document, history)),
        last=LAST,
        over_runs=runs.pictures(document, history, regressions),
        records=list(flight_records(document)),
        published=published.section(document),
        groups=[(result, groups(result)) for result in document.results if result.figures],
        machine=_machine(document),
        shown=shown,
    )
    # Plotly's script, the largest part by far, only where there are pictures
    return text.replace("<!-- scripts -->", scripts() if 'class="plot"' in text else behaviour())


def headline(document: Document, findings: list[Finding]) -> str:
    """The verdict in a line: what is at fault, and where."""
    if findings:
        first = findings[0]
        more = len(findings) - 1
        return f"{FAULTS[first.kind]}: {first.where}" + (f", and {more} more" if more else "")
    made = sum(result.status is Status.PASSED for result in document.results)
    return f"{made} of {len(document.results)} checks were made, and nothing is at fault"


def groups(result: CheckResult) -> list[Group]:
    """The figures of a check by name, those that are too low first."""
    named: dict[str, list[Figure]] = {}
    for figure in result.figures:
        named.setdefault(figure.name, []).append(figure)
    found = []
    for name, figures in named.items():
        ordered = sorted(figures, key=lambda figure: not figure.low)
        low = frozenset(number for number, figure in enumerate(ordered) if figure.low)
        commands = [figure.command for figure in ordered]
        same = len(set(commands)) == 1
        rows = [
            [
                place(figure),
                shown(figure.value, figure.unit),
                expected(figure),
                ratio(figure.ratio),
                "✗ too low" if figure.low else "",
            ]
            for figure in ordered
        ]
        heads = ["where", "measured", "expected", "ratio", "verdict"]
        caption = f"{name}: {len(figures)} figure{'s' if len(figures) != 1 else ''}"
        table = Table(caption, heads, rows, frozenset((1, 2, 3)), low)
        found.append(Group(name, len(low), table, commands[0] if same else "", [] if same else commands))
    return found


def flight_records(document: Document) -> Iterable[Record]:
    """facts["flight_record"] of a check: the recorder's lines, as text or list, or `lines` and `page`."""
    for result in document.results:
        told = result.facts.get("flight_record")
        if not told:
            continue
        page = str(told.get("page", "")) if isinstance(told, dict) else ""
        lines = told.get("lines", []) if isinstance(told, dict) else told
        listed = lines.splitlines() if isinstance(lines, str) else [str(line) for line in lines]
        yield Record(result.title, listed, page)


def _topology(document: Document) -> Topology | None:
    return draw(document) if document.hosts else None


def _machine(document: Document) -> list[tuple[str, str]]:
    """Facts of the first host and its software, as pairs of words."""

    def text(value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{name}={one}" for name, one in value.items()) or "none"
        return "none" if value is None else str(value)

    told = [(str(name), text(value)) for name, value in document.machine.items()]
    return [*told, *((name, version) for name, version in document.software.items())]
