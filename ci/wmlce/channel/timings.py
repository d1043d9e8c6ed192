"""Where the time of `wmlce channel build` went: a table, and a picture of all builds along the time."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from wmlce.builder import worker
from wmlce.builder.schedule import Built
from wmlce.util.files import write_atomic
from wmlce.util.host import cpu_count
from wmlce.util.layout import Layout
from wmlce.util.progress import clock
from wmlce.util.templates import rendered

#: What a package goes through, in this order; "install" is that of the environments in which it is compiled,
#: "unpack" and "test" have those in which it is tested.
STEPS = tuple(step for _, step in worker.STEPS)
_COLOURS = ("#8d8d8d", "#0f62fe", "#a56eff", "#009d9a", "#da1e28", "#c6c6c6")
Phase = tuple[str, float, float]


def document(
    results: Mapping[str, Built], phases: Sequence[Phase], jobs: int, seconds: float
) -> dict[str, Any]:
    """For timings.json: all times in seconds, starts since that of the command."""
    fresh = {name: built for name, built in results.items() if built.fresh or built.again}
    order = sorted(fresh, key=lambda name: fresh[name].started)
    return {
        "seconds": round(seconds, 1),
        "jobs": jobs,
        "cores": cpu_count(),
        "machine": platform.node(),
        "phases": [
            {"name": name, "started": round(started, 1), "seconds": round(took, 1)}
            for name, started, took in phases
        ],
        "recipes": [
            {
                "name": name,
                "started": round(fresh[name].started, 3),
                "seconds": round(fresh[name].seconds, 3),
                "steps": {step: round(fresh[name].steps.get(step, 0.0), 3) for step in STEPS},
            }
            for name in order
        ],
        "steps": {
            step: round(sum(built.steps.get(step, 0.0) for built in fresh.values()), 1) for step in STEPS
        },
    }


def write(layout: Layout, profile: Mapping[str, Any]) -> Path:
    """build/report/timings.json, and timings.html, which is returned."""
    folder = layout.build / "report"
    write_atomic(folder / "timings.json", json.dumps(profile, indent=1) + "\n")
    picture = Markup(_picture(profile)) if profile["recipes"] else ""
    page = rendered(
        "wmlce.channel", "timings.html.j2", {"clock": clock}, profile=profile, steps=STEPS, picture=picture
    )
    write_atomic(folder / "timings.html", page)
    return folder / "timings.html"


def lines(profile: Mapping[str, Any]) -> list[str]:
    """For a terminal: the whole, and what took longest."""
    parts = [f"{phase['name']} {clock(phase['seconds'])}" for phase in profile["phases"]]
    parts.append(
        "all builds together: " + ", ".join(f"{s} {clock(t)}" for s, t in profile["steps"].items() if t)
    )
    longest = sorted(profile["recipes"], key=lambda recipe: -recipe["seconds"])[:10]
    wide = max((len(recipe["name"]) for recipe in longest), default=0)
    for recipe in longest:
        steps = ", ".join(f"{step} {clock(took)}" for step, took in recipe["steps"].items() if took >= 1)
        parts.append(f"  {recipe['name']:{wide}}  {clock(recipe['seconds']):>6}  {steps}")
    return parts


def _picture(profile: Mapping[str, Any]) -> str:
    import plotly.graph_objects as go

    recipes = profile["recipes"]
    names = [recipe["name"] for recipe in recipes]
    figure = go.Figure()
    begun = [recipe["started"] for recipe in recipes]
    for step, colour in zip(STEPS, _COLOURS, strict=True):
        took = [recipe["steps"][step] for recipe in recipes]
        figure.add_bar(
            orientation="h", y=names, x=took, base=list(begun), name=step, marker_color=colour,
            hovertemplate="%{y}: " + step + " %{x:.1f} s<extra></extra>",
        )  # fmt: skip
        begun = [start + seconds for start, seconds in zip(begun, took, strict=True)]
    for phase in profile["phases"]:
        figure.add_vrect(
            x0=phase["started"], x1=phase["started"] + phase["seconds"], fillcolor="#f1c21b", opacity=0.25,
            line_width=0, annotation_text=phase["name"], annotation_position="top left",
        )  # fmt: skip
    figure.update_layout(
        barmode="overlay", template="plotly_white", height=120 + 16 * len(recipes), bargap=0.15,
        margin={"l": 200, "r": 20, "t": 30, "b": 50}, xaxis_title="seconds since the start",
        yaxis={"autorange": "reversed", "dtick": 1, "tickfont": {"size": 10}},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    )  # fmt: skip
    return str(figure.to_html(full_html=False, include_plotlyjs=True))
