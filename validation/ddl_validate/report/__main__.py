"""`python -m ddl_validate.report`: write the page."""

from __future__ import annotations

import argparse
import datetime
import sys
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from ..allreduce.sizes import show_size
from ..common.files import write_atomic
from ..common.page import paragraph, render_sections
from ..trainings.figures import figures_of
from .collect import Facts, collect
from .sections import sections

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Tile:
    """A figure in large type. bad: something is missing or has failed."""

    value: str
    label: str
    bad: bool = False


def tiles(facts: Facts) -> list[Tile]:
    """The figures at the top of the page."""
    entries: list[Tile] = []
    for trainings in facts.trainings:
        for row in trainings.rows:
            efficiency = figures_of(row, trainings)["efficiency"]
            # of the row with the most ranks
            if isinstance(efficiency, float) and row.ranks == max(other.ranks for other in trainings.rows):
                ranks = f"{row.ranks} rank(s)"
                entries.append(Tile(f"{row.speed:.1f}", f"images/s, {row.work} at {ranks}"))
                entries.append(Tile(f"{efficiency:.0%}", f"efficiency at {ranks}"))
    for document in facts.allreduce:
        for scenario in document["scenarios"]:
            rows = [row for row in scenario["summary"] if row["speedup"] is not None]
            if rows:
                size = show_size(rows[-1]["bytes"])
                label = f"speed of the best peer, all-reduce of {size}, {scenario['name']}"
                entries.append(Tile(f"{rows[-1]['speedup']:.2f}x", label))
    entries.append(Tile(str(len(facts.packages)), "packages in the channel", not facts.packages))
    if facts.verify is not None:
        failed = [check for check in facts.verify.get("checks", []) if not check.get("ok")]
        text = f"{len(failed)} failed" if failed else "verified"
        entries.append(Tile(text, "channel checks", bool(failed)))
    return entries


def render(facts: Facts, written: str) -> str:
    """The page as text, with all that it needs: it works without a network."""
    text = f"What was built, verified and measured on this machine. Written {written}."
    parts = [paragraph(text, "soft"), _tile_row(tiles(facts)), *sections(facts)]
    return render_sections(f"ibm-wml-ce {facts.release}: report", f"ibm-wml-ce {facts.release}", parts)


def _tile_row(entries: list[Tile]) -> Markup:
    return Markup('<div class="tiles">\n{}</div>').format(
        Markup("\n").join(
            Markup('<div class="tile"><b{}>{}</b>{}</div>').format(
                Markup(' class="bad"' if tile.bad else ""), tile.value, tile.label
            )
            for tile in entries
        )
    )


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
