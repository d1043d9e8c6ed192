"""The sections of the report, each made of one kind of result."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from ..allreduce.charts import scenario_charts
from ..allreduce.sizes import show_rate, show_seconds, show_size
from ..allreduce.table import best_cells, conditions, describe, measured_peers, titles_of
from ..common.page import Element, Section, Table, details, listing, paragraph, side_by_side
from ..gpu.page import sections as gpu_sections
from ..trainings.page import section as trainings_section
from .collect import Facts


def sections(facts: Facts) -> list[Element | Section]:
    """All of them; where nothing was measured, what to run."""
    parts: list[Element | Section] = [trainings_section(document) for document in facts.trainings]
    if not facts.trainings:
        advice = paragraph("No training was measured: run ./ci/quickstart.", "bad")
        parts.append(Section("Trainings", [advice]))
    parts += [section for document in facts.allreduce if (section := _allreduce(document))]
    parts += [
        Section(f"DDL on GPUs: {document['verdict']}", gpu_sections(document)) for document in facts.gpus
    ]
    parts.append(_channel(facts))
    if facts.problems:
        parts.append(Section("Could not be read", [listing(facts.problems, "bad")]))
    return parts


def _number(value: float | None) -> str:
    return f"{value:.2f}" if value else "-"


def _allreduce(document: dict[str, Any]) -> Section | None:
    """A benchmark's scenarios; None where it has measured nothing yet."""
    titles = titles_of(document)
    scenarios = [scenario for scenario in document["scenarios"] if scenario["cells"]]
    if not titles or not scenarios:
        return None
    host, rounds = document["host"], document["effort"]["rounds"]
    text = (
        f"Sums of {document['type']} in place, each peer at its best setting, medians of {rounds} round(s) "
        f"of the slowest rank's times; {conditions(document)}. On {host['name']} ({host['cores']} cores, "
        f"{host['system']}), {document['time']}: {', '.join(measured_peers(document))}."
    )
    parts: list[Element | Section] = [paragraph(text)]
    for scenario in scenarios:
        charts = side_by_side(scenario_charts(scenario, titles))
        parts.append(
            Section(scenario["name"], [paragraph(describe(scenario)), _times(scenario, titles), charts])
        )
    if document["failures"]:
        lines = [
            f"{failure['peer']}{', ' if failure['setting'] else ''}{failure['setting']}: {failure['reason']}"
            for failure in document["failures"]
        ]
        parts.append(listing(lines, "bad"))
    return Section("All-reduce: DDL beside its peers", parts)


def _times(scenario: dict[str, Any], titles: dict[str, str]) -> Table:
    """Each peer's time by size, and how DDL compares."""
    rows = []
    for row in scenario["summary"]:
        best = best_cells(scenario, row["bytes"])
        bound = row["lower_bound"]
        rows.append(
            [
                show_size(row["bytes"]),
                f"{bound * 1e3:.3g} ms" if bound else "-",
                *(_time(best.get(peer)) for peer in titles),
                *(_number(row[name]) for name in ("ddl_over_lower_bound", "speedup", "cpu_ratio")),
            ]
        )
    heads = ["size", "bandwidth lower bound", *titles.values()]
    heads += ["DDL / lower bound", "best peer / DDL", "CPU: DDL / best peer"]
    caption = f"Time of an all-reduce, {scenario['name']}"
    return Table(caption, heads, rows, frozenset(range(len(heads))))


def _time(cell: dict[str, Any] | None) -> str:
    """A peer's time with its bus bandwidth, processor time and setting."""
    if cell is None:
        return "-"
    lines = [
        f"busbw {show_rate(cell['busbw'])}",
        f"CPU {show_seconds(cell['cpu_user'] + cell['cpu_system'])}",
    ]
    if cell["setting"] != "defaults":
        lines.append(cell["setting"])
    text = Markup("<br>").join(lines)
    return Markup('{}<br><span class="soft">{}</span>').format(show_seconds(cell["median"]), text)


def _channel(facts: Facts) -> Section:
    if not facts.packages:
        advice = paragraph("There is no channel: run build/tools/bin/wmlce channel build.", "bad")
        return Section("The channel", [advice])
    megabytes = sum(package.get("size", 0) for package in facts.packages) / 1e6
    text = Markup("{} packages, {:.0f} MB.").format(len(facts.packages), megabytes)
    if not facts.verify:
        text += Markup(" Not verified yet: <code>build/tools/bin/wmlce channel verify</code>.")
    parts: list[Element] = [paragraph(text)]
    if facts.verify:
        bad = Markup('<span class="bad">{}</span>')
        checks = facts.verify["checks"]
        cells = [[c["name"], c["summary"] if c["ok"] else bad.format(c["summary"])] for c in checks]
        failed = sum(not check["ok"] for check in checks)
        parts.append(paragraph(f"{failed} failed" if failed else "Verified.", "bad" if failed else ""))
        parts.append(Table("Checks of the channel", ["check", "result"], cells))
    rows = [
        [
            package["name"],
            package["version"],
            Markup("<code>{}</code>").format(package["build"]),
            package.get("license") or "not stated",
            f"{package.get('size', 0) / 1e6:.1f}",
        ]
        for package in facts.packages
    ]
    heads = ["package", "version", "build", "licence", "MB"]
    parts.append(details("All packages", [Table("All packages", heads, rows, frozenset((4,)))]))
    return Section("The channel", parts)
