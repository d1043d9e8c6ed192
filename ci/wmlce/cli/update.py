"""`wmlce outdated` and `wmlce update`: what is newer than the lock files, and moving to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from wmlce.cli.session import Context, session_of


def _write(report: Path | None, page: str, facts: object) -> None:
    """What --report asks for: the page, and the same facts for scripts."""
    from wmlce.util.files import write_atomic

    if report is not None:
        write_atomic(report, page)
        write_atomic(report.with_name(f"{report.name}.json"), json.dumps(facts, indent=1) + "\n")


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

    session = session_of(context)
    advisory_list = Advisories(advisories)
    standings = outdated.find(session.layout, packages or [], advisory_list, session.say)
    page = outdated.report(standings)
    facts = {"packages": [item.to_json() for item in standings]}
    _write(report, page, facts)
    session.answer(facts, page.rstrip("\n"))


def update_command(
    context: Context,
    packages: Annotated[
        list[str] | None,
        typer.Argument(help="Packages or recipes; default: all that is newer.", metavar="[PACKAGE]..."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would move and what would be built.")
    ] = False,
    advisories: Annotated[
        Path | None,
        typer.Option(
            "--advisories", help="Advisories in OSV's format: a file or a folder.", metavar="FILE|DIR"
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write the report in Markdown, and FILE.json.", metavar="FILE"),
    ] = None,
    branch: Annotated[
        str | None,
        typer.Option("--branch", help="The branch to make; default: update-YYYY-MM-DD.", metavar="NAME"),
    ] = None,
    hold: Annotated[
        list[str] | None,
        typer.Option("--hold", help="A package that stays; repeat it.", metavar="PACKAGE"),
    ] = None,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Build and publish, but do not check the channel.")
    ] = False,
) -> None:
    """Move what is newer, build and verify it on a branch of its own; put back what fails."""
    from wmlce.upkeep import report as reports
    from wmlce.upkeep import update
    from wmlce.upkeep.advisories import Advisories
    from wmlce.upkeep.outdated import UnknownPackage
    from wmlce.upkeep.worktree import BadBranch

    session = session_of(context)
    both = sorted(set(packages or []) & set(hold or []))
    if both:
        raise typer.BadParameter(f"{', '.join(both)} cannot both move and stay (--hold)")
    request = update.Request(
        branch or update.default_branch(), packages or [], hold or [], not no_verify, dry_run
    )
    try:
        facts = update.run(session.layout, request, Advisories(advisories), session.progress)
    except (BadBranch, UnknownPackage) as error:
        raise typer.BadParameter(str(error)) from error
    page = reports.page(facts)
    _write(report, page, facts)
    session.answer(facts, page.rstrip("\n"))
    if facts["broken"] or facts["findings"]:
        raise typer.Exit(1)
