"""The page: what the template shows, gathered from a document and its history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ...common.page import Table
from ...common.page import render as render_page
from ..document import Document
from ..history import LAST, History, compare, good_on_like_hosts
from ..model import CheckResult, Figure, Finding, Kind, Status
from . import network, published, runs, training
from .topology import Topology, draw
from .wording import FAULTS, duration, expected, place, ratio, sentence, with_unit

_SEVERITY = {kind: number for number, kind in enumerate(Kind)}
_STATES = {
    Status.PASSED: ("✓ passed", "good"),
    Status.FAILED: ("✗ failed", "bad"),
    Status.BROKEN: ("! gave no result", "bad"),
    Status.SKIPPED: ("– skipped", "soft"),
}


@dataclass(frozen=True)
class Group:
    """Figures of one name. command: where all are measured by the same."""

    name: str
    low: int
    table: Table
    command: str


@dataclass(frozen=True)
class Record:
    """What the flight recorder says of a failed run. page: where its own page lies."""

    check: str
    lines: list[str]
    page: str


def render(document: Document, history: History) -> str:
    """One HTML file: verdict first, then pictures with tables, then every figure."""
    regressions = compare(document, history)
    findings = sorted(document.findings, key=lambda finding: (finding.warning, _SEVERITY[finding.kind]))
    verdict = headline(document, findings)
    return render_page(
        Path(__file__).parent / "page.html.j2",
        {"duration": duration, "sentence": sentence},
        title=f"{document.verdict}: {verdict} – wmlce validate",
        skip_to="the verdict",
        document=document,
        headline=verdict,
        findings=findings,
        faults=FAULTS,
        drain=list(dict.fromkeys(host for finding in findings for host in finding.hosts)),
        unfinished=[
            result for result in document.results if result.status in (Status.SKIPPED, Status.BROKEN)
        ],
        checks=_checks(document),
        not_judged=_not_judged(document),
        topology=_topology(document),
        training=training.pictures(document),
        bandwidth=network.bandwidth(document),
        hosts=network.hosts(document),
        pairs=network.pairs(document),
        history=history,
        regressions=regressions,
        compared=len(good_on_like_hosts(document, history)),
        last=LAST,
        over_runs=runs.pictures(document, history, regressions),
        records=list(flight_records(document)),
        published=published.section(document),
        groups=[(result, groups(result)) for result in document.results if result.figures],
        machine=_machine(document),
        with_unit=with_unit,
    )


def _checks(document: Document) -> Table:
    """Every check with its verdict, and why."""
    rows = []
    for result in document.results:
        verdict, kind = _STATES[result.status]
        rows.append(
            [
                Markup('{}<br><span class="soft">{}</span>').format(result.name, result.title),
                Markup('<span class="state {}">{}</span>').format(kind, verdict),
                duration(result.seconds) if result.seconds else "",
                "; ".join(finding.text for finding in result.findings) or result.reason,
            ]
        )
    caption = "Every check with its verdict; skipped ones with the reason"
    return Table(caption, ["check", "verdict", "time", "why"], rows, frozenset((2,)))


def _not_judged(document: Document) -> Table | None:
    heads = ["check", "what", "why"]
    rows: list[list[Any]] = [[entry[name] for name in heads] for entry in document.not_judged]
    return Table("What this run says nothing of", heads, rows) if rows else None


def headline(document: Document, findings: list[Finding]) -> str:
    """The verdict in a line: what is at fault, and where."""
    faults = [finding for finding in findings if not finding.warning]
    if faults:
        first = faults[0]
        more = len(faults) - 1
        return f"{FAULTS[first.kind]}: {first.where}" + (f", and {more} more" if more else "")
    passed = sum(result.status is Status.PASSED for result in document.results)
    text = f"{passed} of {len(document.results)} checks were made, and nothing is at fault"
    return text + (f"; warnings: {len(findings)}" if findings else "")


def groups(result: CheckResult) -> list[Group]:
    """The figures of a check by name, those that are too low first."""
    named: dict[str, list[Figure]] = {}
    for figure in result.figures:
        named.setdefault(figure.name, []).append(figure)
    tables = []
    for name, figures in named.items():
        ordered = sorted(figures, key=lambda figure: not figure.low)
        low = frozenset(number for number, figure in enumerate(ordered) if figure.low)
        commands = [figure.command for figure in ordered]
        same = len(set(commands)) == 1
        rows = [
            [
                place(figure),
                with_unit(figure.value, figure.unit),
                expected(figure),
                ratio(figure.ratio),
                "✗ too low" if figure.low else "",
            ]
            for figure in ordered
        ]
        heads = ["where", "measured", "expected", "ratio", "verdict"]
        caption = f"{name}: {len(figures)} figure{'s' if len(figures) != 1 else ''}"
        table = Table(caption, heads, rows, frozenset((1, 2, 3)), low, [] if same else commands)
        tables.append(Group(name, len(low), table, commands[0] if same else ""))
    return tables


def flight_records(document: Document) -> Iterable[Record]:
    """facts["flight_record"] of a check: the recorder's lines, as text or list, or `lines` and `page`."""
    for result in document.results:
        record = result.facts.get("flight_record")
        if not record:
            continue
        page = str(record.get("page", "")) if isinstance(record, dict) else ""
        lines = record.get("lines", []) if isinstance(record, dict) else record
        listed = lines.splitlines() if isinstance(lines, str) else [str(line) for line in lines]
        yield Record(result.title, listed, page)


def _topology(document: Document) -> Topology | None:
    return draw(document) if document.hosts else None


def _machine(document: Document) -> list[tuple[str, str]]:
    """Facts of the first host and its software, as pairs of words."""

    def text(value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{name}={item}" for name, item in value.items()) or "none"
        return "none" if value is None else str(value)

    facts = [(str(name), text(value)) for name, value in document.machine.items()]
    return [*facts, *((name, version) for name, version in document.software.items())]
