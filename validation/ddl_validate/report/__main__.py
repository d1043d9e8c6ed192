"""`python -m ddl_validate.report`: write the page."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import plotly.graph_objects as go
from markupsafe import Markup

from ..allreduce.charts import scenario_charts
from ..allreduce.sizes import show_rate, show_seconds, show_size
from ..allreduce.table import best_cells, conditions, describe, titles_of
from ..common.files import write_atomic
from ..common.page import STYLE, behaviour, plot, scripts
from ..gpu.page import section as gpu_section
from .charts import scaling_chart, steps_chart, training_speed_chart
from .collect import Facts, collect

ROOT = Path(__file__).resolve().parents[3]


def tiles(facts: Facts) -> list[dict[str, Any]]:
    """The figures at the top of the page."""
    found: list[dict[str, Any]] = []
    for result in facts.scaling:
        last = result["runs"][-1]
        found.append(
            {
                "value": f"{last['images_per_sec']:.1f}",
                "label": f"images/s, {result['model']} at {last['ranks']} rank(s)",
            }
        )
        found.append(
            {"value": f"{last['efficiency']:.0%}", "label": f"efficiency at {last['ranks']} rank(s)"}
        )
    for document in facts.allreduce:
        for one in document["scenarios"]:
            rows = [row for row in one["summary"] if row["speedup"] is not None]
            if rows:
                last = rows[-1]
                label = f"speed of the best peer, all-reduce of {show_size(last['bytes'])}, {one['name']}"
                found.append({"value": f"{last['speedup']:.2f}x", "label": label})
    found.append(
        {"value": str(len(facts.packages)), "label": "packages in the channel", "bad": not facts.packages}
    )
    if facts.verify is not None:
        wrong = [check for check in facts.verify.get("checks", []) if not check.get("ok")]
        found.append(
            {
                "value": f"{len(wrong)} failed" if wrong else "verified",
                "label": "channel checks",
                "bad": bool(wrong),
            }
        )
    return found


def render(facts: Facts, written: str) -> str:
    """The page as text, with all that it needs: it works without a network."""

    def html(figure: go.Figure) -> Markup:
        return Markup(plot(figure))

    scaling = [
        {"data": data, "charts": [html(scaling_chart(data)), html(steps_chart(data))]}
        for data in facts.scaling
    ]
    training_speed = [
        {"data": data, "models": _models(data["rows"], html)} for data in facts.training_speed if data["rows"]
    ]
    allreduce = [
        {
            "data": document,
            "titles": titles,
            "conditions": conditions(document),
            "scenarios": [_scenario(one, titles, html) for one in measured],
        }
        for document in facts.allreduce
        if (titles := titles_of(document)) and (measured := [s for s in document["scenarios"] if s["cells"]])
    ]
    gpus = [
        {"verdict": document["verdict"], "section": Markup(gpu_section(document, "h3"))}
        for document in facts.gpus
    ]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    text = environment.get_template("page.html.j2").render(
        facts=facts,
        style=Markup(STYLE),
        scaling=scaling,
        training_speed=training_speed,
        allreduce=allreduce,
        gpus=gpus,
        tiles=tiles(facts),
        total_size=sum(package.size for package in facts.packages),
        written=written,
    )
    return text.replace("<!-- scripts -->", scripts() if 'class="plot"' in text else behaviour())


def _models(rows: list[dict[str, Any]], html: Callable[[go.Figure], Markup]) -> list[dict[str, Any]]:
    """Rows and picture of each model whose training speeds were compared."""
    found = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        found.append({"model": model, "rows": own, "chart": html(training_speed_chart(model, own))})
    return found


def _scenario(
    one: dict[str, Any], titles: dict[str, str], html: Callable[[go.Figure], Markup]
) -> dict[str, Any]:
    """Rows and pictures of one all-reduce scenario."""
    rows = []
    for row in one["summary"]:
        best = best_cells(one, row["bytes"])
        times = [
            {
                "time": show_seconds(one_cell["median"]),
                "setting": one_cell["setting"],
                "busbw": show_rate(one_cell["busbw"]),
                "cpu": show_seconds(one_cell["cpu_user"] + one_cell["cpu_system"]),
            }
            if (one_cell := best.get(peer))
            else None
            for peer in titles
        ]
        rows.append({**row, "size": show_size(row["bytes"]), "times": times})
    charts = [html(figure) for figure in scenario_charts(one, titles)]
    return {"name": one["name"], "text": describe(one), "rows": rows, "charts": charts}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ddl_validate.report",
        description="Write the report of a build folder as one HTML page.",
    )
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build", help="build folder (default: the clone's)"
    )
    parser.add_argument("--output", type=Path, help="page to write (default: BUILD/report/index.html)")
    options = parser.parse_args(arguments)
    if not options.build.is_dir():
        parser.error(f"--build {options.build}: no such folder; run ./ci/quickstart first")
    output: Path = options.output or options.build / "report" / "index.html"
    facts = collect(options.build, (ROOT / "VERSION").read_text().strip())
    text = render(facts, datetime.datetime.now(datetime.UTC).isoformat(sep=" ", timespec="seconds"))
    write_atomic(output, text)
    print(f"report: {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
