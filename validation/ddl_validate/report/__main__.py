"""`python -m ddl_validate.report`: write the page."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path

from ..common.files import write_atomic
from ..common.measured import ROOT
from ..common.page import paragraph, render_sections
from .collect import Facts, collect
from .sections import sections


def render(facts: Facts, written: str) -> str:
    """The page as text, with all that it needs: it works without a network."""
    text = f"What was built, verified and measured on this machine. Written {written}."
    parts = [paragraph(text, "soft"), *sections(facts)]
    return render_sections(f"ibm-wml-ce {facts.release}: report", f"ibm-wml-ce {facts.release}", parts)


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
