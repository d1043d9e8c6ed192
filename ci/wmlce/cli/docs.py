"""`wmlce docs`: the documentation as a site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wmlce.cli.session import Context, session_of


def docs_command(
    context: Context,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder of the site.  [build/site]")
    ] = None,
) -> None:
    """Make the documentation's site, which a browser reads from its folder; ci/docs installs the tools."""
    from wmlce.documentation import site

    session = session_of(context)
    layout = session.layout
    result = site.build(layout, (output or layout.build / site.NAME).absolute(), session.say)
    start = result.folder / site.START
    session.answer(
        {"start": str(start), "version": result.version, "commit": result.commit},
        f"{layout.display(start)}: open it with a browser",
    )
