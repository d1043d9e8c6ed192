"""`wmlce outdated`: what is newer than the lock files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from wmlce.cli.session import Context, session_of


def outdated_command(
    context: Context,
    packages: Annotated[
        list[str] | None,
        typer.Argument(help="Packages or recipes; default: all that is locked.", metavar="[PACKAGE]..."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write a page in Markdown, and FILE.json beside it.", metavar="FILE"),
    ] = None,
    advisories: Annotated[
        Path | None,
        typer.Option(
            "--advisories", help="Advisories in OSV's format: a file or a folder.", metavar="FILE|DIR"
        ),
    ] = None,
) -> None:
    """Say what is newer than the lock files, what holds it back, and which advisories a move closes."""
    from wmlce.upkeep import outdated
    from wmlce.upkeep.advisories import Advisories
    from wmlce.util.files import write_atomic

    session = session_of(context)
    known = Advisories(advisories)
    found = outdated.find(session.layout, packages or [], known, session.say)
    page = outdated.report(found)
    facts = {"packages": [item.to_json() for item in found]}
    if report is not None:
        write_atomic(report, page)
        write_atomic(report.with_name(f"{report.name}.json"), json.dumps(facts, indent=1) + "\n")
    session.answer(facts, page.rstrip("\n"))
