"""The command line. Every command ends with exit code 0, or 1 and one error that says what, where and the
remedy.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from wmlce import __version__
from wmlce.cli import channel, doctor, env, image, installer, lock, module, recipe, source
from wmlce.cli.session import Context, Session
from wmlce.util.errors import WmlceError

app = typer.Typer(
    help="Fetches, builds, tests, indexes, installs and verifies the conda channel of this distribution.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(source.app, name="source")
app.add_typer(lock.app, name="lock")
app.add_typer(recipe.app, name="recipe")
app.add_typer(channel.app, name="channel")
app.add_typer(env.app, name="env")
app.add_typer(module.app, name="module")
app.add_typer(image.app, name="image")
app.add_typer(installer.app, name="installer")
app.command("doctor")(doctor.doctor_command)


def _version(value: bool) -> None:
    if value:
        print(f"wmlce {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    context: Context,
    root: Annotated[Path | None, typer.Option("--root", help="The clone to work on.", metavar="DIR")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress lines.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of all commands."""
    context.obj = Session(root, as_json, quiet)


def main() -> None:
    """Entry point of the command."""
    code = _run()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = code or 1
    # py-rattler's worker threads may still let go of Python objects, which aborts an interpreter that is
    # shutting down; everything that has to be finished or flushed is by now
    os._exit(code)


def _run() -> int:
    """Run the command line; returns the exit code."""
    as_json = "--json" in sys.argv
    # global options are also understood behind the command, where people write them
    for flag in ("--json", "--quiet"):
        if flag in sys.argv[2:]:
            sys.argv = [sys.argv[0], flag, *(argument for argument in sys.argv[1:] if argument != flag)]
    try:
        app(standalone_mode=True)
    except WmlceError as error:
        if as_json and not Session.answered:
            print(json.dumps({"error": error.to_json()}, indent=1))
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; finished packages are kept, the same command goes on from there", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        # a defect of the tool: the traceback is what its report needs
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
