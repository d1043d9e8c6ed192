"""`wmlce installer`: the environment as one file that installs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wmlce.cli.session import Context, session_of

app = typer.Typer(
    help="The single-file installer, for machines without conda and without a network.", no_args_is_help=True
)


@app.command("build")
def installer_build(
    context: Context,
    specs: Annotated[
        list[str] | None, typer.Argument(help="Match specs; default: powerai.", metavar="[SPEC]...")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="The file; default: build/installers/ibm-wml-ce-VERSION-PLATFORM.sh.",
            metavar="FILE",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Channel to take packages from; default: build/channel.", metavar="DIR"),
    ] = None,
    channel: Annotated[
        str | None,
        typer.Option(
            "--channel",
            help="Where users' conda finds the channel, for the records of the installed environment.",
            metavar="URL",
        ),
    ] = None,
    proprietary: Annotated[
        bool, typer.Option("--proprietary", help="Also packages whose licence does not let you pass them on.")
    ] = False,
) -> None:
    """Write a file that installs the packages; nothing is done where it is there already."""
    from wmlce.installer import build

    session = session_of(context)
    layout = session.layout
    request = build.Request(
        output=output.absolute() if output is not None else build.default_output(layout),
        specs=sorted(set(specs or [])) or ["powerai"],
        source=source.absolute() if source is not None else layout.channel,
        channel=channel,
        proprietary=proprietary,
    )
    fresh = build.build(layout, request, say=session.say)
    record = build.read_record(request.output) or {}
    session.answer(
        {
            "installer": str(request.output),
            "built": fresh,
            "size": record.get("size"),
            "sha256": record.get("sha256"),
            "glibc": record.get("glibc"),
        },
        f"{layout.display(request.output)}: {'ready' if fresh else 'unchanged'}, "
        f"{request.output.stat().st_size / 1e6:.0f} MB, {len(record.get('packages', []))} packages, "
        f"glibc {record.get('glibc')} or newer",
    )
