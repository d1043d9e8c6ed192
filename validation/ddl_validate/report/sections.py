"""The sections of the report, each made of one kind of result."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup

from ..allreduce.charts import scenario_charts
from ..allreduce.sizes import show_rate, show_seconds, show_size
from ..allreduce.table import best_cells, conditions, describe, titles_of
from ..common.page import Element, Section, Table, details, listing, paragraph, pre, side_by_side
from ..gpu.page import sections as gpu_sections
from .charts import scaling_chart, steps_chart, training_speed_chart
from .collect import Facts


def sections(facts: Facts) -> list[Element | Section]:
    """All of them; where nothing was measured, what to run."""
    parts: list[Element | Section] = [_scaling(result) for result in facts.scaling]
    if not facts.scaling:
        advice = paragraph("No benchmark result was found: run ./ci/quickstart.", "bad")
        parts.append(Section("Scaling", [advice]))
    parts += [_frameworks(result) for result in facts.frameworks]
    parts += [_training_speed(result) for result in facts.training_speed if result["rows"]]
    parts += [section for document in facts.allreduce if (section := _allreduce(document))]
    parts += [
        Section(f"DDL on GPUs: {document['verdict']}", gpu_sections(document)) for document in facts.gpus
    ]
    parts.append(_channel(facts))
    if facts.problems:
        parts.append(Section("Could not be read", [listing(facts.problems, "bad")]))
    return parts


def _scaling(result: dict[str, Any]) -> Section:
    host, update, runs = result["host"], result["variable_update"], result["runs"]
    text = Markup(
        "tf_cnn_benchmarks, {}, batch {} and {} core(s) a rank, variables by <code>{}</code>, on {} "
        "({} cores, {}), {}."
    ).format(
        *(result["data"], result["batch_per_rank"], result["cores_per_rank"], update),
        *(host["name"], host["cores"], host["system"], result["time"]),
    )
    rows = [
        [
            str(run["ranks"]),
            f"{run['images_per_sec']:.2f}",
            f"{run['efficiency']:.2f}",
            run["chose"],
            f"{run['seconds']:.0f} s",
        ]
        for run in runs
    ]
    logs = []
    for run in runs:
        logs.append(pre(f"{' '.join(run['command'])}\nlog: {run['log']}"))
        if run["plan"]:
            logs.append(pre(json.dumps(run["plan"], indent=1)))
    heads = ["ranks", "images/s", "efficiency", f"{update} chose", "run time"]
    return Section(
        f"{result['model']} at {' and '.join(str(run['ranks']) for run in runs)} rank(s)",
        [
            paragraph(text),
            Table("Speed by the number of ranks", heads, rows, frozenset((0, 1, 2, 4))),
            side_by_side([scaling_chart(result), steps_chart(result)]),
            details("Commands and logs", logs),
        ],
    )


def _frameworks(result: dict[str, Any]) -> Section:
    rows = [
        [
            row["framework"],
            row["version"],
            f"{row['accuracy']:.3f}",
            f"{row['seconds']:.1f} s",
            row.get("time", result["time"]),
        ]
        for row in result["frameworks"]
    ]
    heads = ["framework", "version", "test accuracy", "run time", "trained"]
    text = (
        "The handwritten digits, trained through DDL in one environment. Where nothing has changed since, a "
        "training is not repeated."
    )
    return Section(
        f"Frameworks at {result['ranks']} rank(s)",
        [paragraph(text), Table("Accuracy and time of every framework", heads, rows, frozenset((2, 3)))],
    )


def _training_speed(result: dict[str, Any]) -> Section:
    host = result["host"]
    text = (
        f"{result['place']}; {host['name']} ({host['processor']}, {host['cores']} cores), {result['time']}. "
        "Medians of the rounds. Parallel efficiency is the speed over that of the same processes when they "
        "exchange nothing; communication efficiency compares steps with and without exchange that took turns "
        "in one run."
    )
    parts: list[Element | Section] = [paragraph(text)]
    for model in dict.fromkeys(row["model"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["model"] == model]
        chart = side_by_side([training_speed_chart(model, rows)])
        title = f"{model}, batch {rows[0]['batch']} a rank"
        parts.append(Section(title, [_speed_table(model, rows), chart]))
    return Section("Training speed side by side", parts)


def _speed_table(model: str, rows: list[dict[str, Any]]) -> Table:
    heads = ["configuration", "images/s", "lowest to highest", "parallel efficiency"]
    heads += ["communication efficiency", "DDL is ahead", "exchange", "overlap"]
    cells = [
        [
            row["title"],
            f"{row['median']:.2f}",
            f"{min(row['speeds']):.2f} to {max(row['speeds']):.2f}",
            _number(row["parallel_efficiency"], "{:.2f}", ""),
            _number(row.get("communication_efficiency"), "{:.3f}", ""),
            _number(row["ddl_ahead"], "{:.2f}x", ""),
            _number(row["exchange"], "{:.3f} s", ""),
            _number(row["overlap"], "{:.3f} s", ""),
        ]
        for row in rows
    ]
    return Table(f"Training speed of {model}", heads, cells, frozenset(range(1, 8)))


def _number(value: float | None, form: str, absent: str = "-") -> str:
    return absent if value is None else form.format(value)


def _allreduce(document: dict[str, Any]) -> Section | None:
    """A benchmark's scenarios; None where it has measured nothing yet."""
    titles = titles_of(document)
    scenarios = [scenario for scenario in document["scenarios"] if scenario["cells"]]
    if not titles or not scenarios:
        return None
    host, rounds = document["host"], document["effort"]["rounds"]
    peers = [f"{peer['title']} {peer['version']}" for peer in document["peers"].values() if peer["available"]]
    text = (
        f"Sums of {document['type']} in place, each peer at its best setting, medians of {rounds} round(s) "
        f"of the slowest rank's times; {conditions(document)}. On {host['name']} ({host['cores']} cores, "
        f"{host['system']}), {document['time']}: {', '.join(peers)}."
    )
    parts: list[Element | Section] = [paragraph(text)]
    for scenario in scenarios:
        elements: list[Element] = [paragraph(describe(scenario)), _times(scenario, titles)]
        elements.append(side_by_side(scenario_charts(scenario, titles)))
        parts.append(Section(scenario["name"], elements))
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
                _number(row["ddl_over_lower_bound"] or None, "{:.2f}"),
                _number(row["speedup"] or None, "{:.2f}"),
                _number(row["cpu_ratio"] or None, "{:.2f}"),
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
        return Section(
            "The channel",
            [paragraph("There is no channel: run build/tools/bin/wmlce channel build.", "bad")],
        )
    megabytes = sum(package.size for package in facts.packages) / 1e6
    text = Markup("{} packages, {:.0f} MB.").format(len(facts.packages), megabytes)
    if not facts.verify:
        text += Markup(" Not verified yet: <code>build/tools/bin/wmlce channel verify</code>.")
    parts: list[Element] = [paragraph(text)]
    if facts.verify:
        checks = [
            [
                check["name"],
                check["summary"]
                if check["ok"]
                else Markup('<span class="bad">{}</span>').format(check["summary"]),
            ]
            for check in facts.verify["checks"]
        ]
        parts.append(Table("Checks of the channel", ["check", "result"], checks))
    rows = [
        [
            package.name,
            package.version,
            Markup("<code>{}</code>").format(package.build),
            package.license,
            f"{package.size / 1e6:.1f}",
        ]
        for package in facts.packages
    ]
    heads = ["package", "version", "build", "licence", "MB"]
    parts.append(details("All packages", [Table("All packages", heads, rows, frozenset((4,)))]))
    return Section("The channel", parts)
