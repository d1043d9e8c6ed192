"""The table of a result, out of its JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from .sizes import show_rate, show_seconds, show_size


def best_cells(scenario: dict[str, Any], size: int) -> dict[str, dict[str, Any]]:
    """The fastest setting of each peer at a size; one measured in a single round only where there is no
    other."""
    cells: dict[str, dict[str, Any]] = {}
    for cell in scenario["cells"]:
        if cell["bytes"] != size:
            continue
        best = cells.get(cell["peer"])
        if best is None or (cell["cut"], cell["median"]) < (best["cut"], best["median"]):
            cells[cell["peer"]] = cell
    return cells


def describe(scenario: dict[str, Any]) -> str:
    """Hosts, racks, ranks, order and rates in one line."""
    slots = scenario["slots"]
    each = f"{len(slots)} x {slots[0]}" if len(set(slots)) == 1 else "+".join(map(str, slots))
    parts = [f"{each} ranks"]
    if len(slots) > 1:
        parts += [f"{scenario['racks']} rack(s)", scenario["order"]]
        parts += [f"host links {scenario['host_rate']}"] if scenario["host_rate"] else []
        if scenario["racks"] > 1 and scenario["uplink_rate"]:
            parts.append(f"uplinks {scenario['uplink_rate']}")
    return ", ".join(parts)


def conditions(document: dict[str, Any]) -> str:
    """How the cores were shared out, in one line."""
    share = document["cpu_share"]
    speed = "cores at full speed"
    if share["share"] < 1:
        speed = f"cores at {share['share']:g} of their speed, by {share['method']}: {share['explanation']}"
    bound = any(len(set(scenario["cores"])) > 1 for scenario in document["scenarios"])
    wire = document.get("wire", "full")
    rounded = "" if wire == "full" else f"; DDL sends {wire} between hosts, with the bound of {wire}"
    return f"{'each rank on cores of its own' if bound else 'ranks not bound to cores'}; {speed}{rounded}"


def times_bound(seconds: float, bound: float | None) -> str:
    return f"{show_seconds(seconds)} ({seconds / bound:.2f})" if bound else show_seconds(seconds)


def spread(cell: dict[str, Any]) -> str:
    """The fastest and the slowest round, where there are several."""
    times = cell["round_times"]
    return f"\n{show_seconds(min(times))} to {show_seconds(max(times))}" if len(times) > 1 else ""


def _numbers(title: str, headings: Sequence[str]) -> Table:
    """A table of numbers."""
    columns = [Column(heading, justify="right") for heading in headings]
    return Table(*columns, title=title, title_justify="left")


def _peer_text(cell: dict[str, Any] | None) -> str:
    """A peer's time, its rounds and bandwidths, and its setting."""
    if cell is None:
        return "-"
    text = times_bound(cell["median"], cell["lower_bound"]) + spread(cell)
    text += f"\n{show_rate(cell['algbw'])}\n{show_rate(cell['busbw'])}"
    return text if cell["setting"] == "defaults" else f"{text}\n{escape(cell['setting'])}"


def scenario_table(scenario: dict[str, Any], titles: dict[str, str]) -> Table:
    """One row a size: the lower bound, each peer at its best setting, and DDL against the best of them."""
    peers = [f"{title}\n(x lower bound)\nrounds\nalgbw\nbusbw" for title in titles.values()]
    headings = ["size", "bandwidth\nlower bound", *peers, "DDL against\nthe best peer"]
    table = _numbers(f"{scenario['name']}: {describe(scenario)}", headings)
    for row in scenario["summary"]:
        best = best_cells(scenario, row["bytes"])
        cells = [_peer_text(best.get(peer)) for peer in titles]
        speedup = row["speedup"]
        style = "" if speedup is None else "green" if speedup >= 1 else "yellow" if speedup >= 0.95 else "red"
        verdict = "-" if speedup is None else f"[{style}]{speedup:.2f}x[/]"
        bound = show_seconds(row["lower_bound"]) if row["lower_bound"] else "-"
        table.add_row(show_size(row["bytes"]), bound, *cells, verdict)
    return table


def cpu_table(scenario: dict[str, Any], titles: dict[str, str]) -> Table:
    """Processor time of a call by size and peer, at the settings of ``scenario_table``."""
    title = f"{scenario['name']}: processor time of a call, all ranks together: user + system"
    table = _numbers(title, ["size", *titles.values(), "DDL over\nthe best peer"])
    for row in scenario["summary"]:
        best = best_cells(scenario, row["bytes"])
        cells = [
            f"{show_seconds(cell['cpu_user'])} + {show_seconds(cell['cpu_system'])}"
            if (cell := best.get(peer))
            else "-"
            for peer in titles
        ]
        ratio = row["cpu_ratio"]
        style = "green" if ratio is not None and ratio <= 1 else "yellow"
        table.add_row(show_size(row["bytes"]), *cells, "-" if ratio is None else f"[{style}]{ratio:.2f}x[/]")
    return table


def settings_table(scenario: dict[str, Any], titles: dict[str, str]) -> Table:
    """One row a setting, one column a size."""
    sizes = [row["bytes"] for row in scenario["summary"]]
    table = Table("peer", "setting", title=f"{scenario['name']}: every setting", title_justify="left")
    for size in sizes:
        table.add_column(show_size(size), justify="right")
    rows: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for cell in scenario["cells"]:
        rows.setdefault((cell["peer"], cell["setting"]), {})[cell["bytes"]] = cell
    for (peer, setting), cells in sorted(rows.items()):
        multiples = []
        for size in sizes:
            cell = cells.get(size)
            once = "*" if cell and cell["cut"] else ""
            multiples.append(times_bound(cell["median"], cell["lower_bound"]) + once if cell else "-")
        table.add_row(escape(titles.get(peer, peer)), escape(setting), *multiples)
    if any(cell["cut"] for cell in scenario["cells"]):
        table.caption = "* measured in one round: much slower than another setting of the same peer"
    return table


def titles_of(document: dict[str, Any]) -> dict[str, str]:
    """Titles of the peers that were measured, by name, DDL first."""
    measured = {cell["peer"] for scenario in document["scenarios"] for cell in scenario["cells"]}
    peers = document["peers"]
    return {name: peers[name].get("title", name) for name in peers if name in measured}


def measured_peers(document: dict[str, Any]) -> list[str]:
    """Title and version of each peer that was measured."""
    return [f"{peer['title']} {peer['version']}" for peer in document["peers"].values() if peer["available"]]


def show(document: dict[str, Any], console: Console, every_setting: bool = False) -> None:
    """Print the tables and what failed."""
    titles = titles_of(document)
    for scenario in document["scenarios"]:
        if not scenario["cells"]:
            continue
        console.print(scenario_table(scenario, titles))
        console.print(cpu_table(scenario, titles))
        if every_setting:
            console.print(settings_table(scenario, titles))
    rounds, measured = document["effort"]["rounds"], ", ".join(measured_peers(document))
    console.print(
        f"float32 sums in place, slowest rank's times, medians over {rounds} round(s); {measured}",
        soft_wrap=True,
    )
    console.print(conditions(document), soft_wrap=True, markup=False)
    failed = {failure["peer"] for failure in document["failures"]}
    for name, peer in document["peers"].items():
        if not peer["available"] and name not in failed:
            console.print(f"not measured: {name}: {peer['reason']}", markup=False, soft_wrap=True)
    for failure in document["failures"]:
        where = "" if failure["scenario"] == "*" else f" in {failure['scenario']}"
        setting = f", {failure['setting']}" if failure["setting"] else ""
        word = "WRONG SUM" if failure["wrong"] else "not measured"
        line = f"{word}: {failure['peer']}{setting}{where}: {failure['reason']}"
        console.print(line, style="red" if failure["wrong"] else "yellow", markup=False, soft_wrap=True)
