"""`wmlce build-root`: the system that packages are built in."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from wmlce.cli.session import Context, Session, session_of
from wmlce.util.errors import WmlceError

app = typer.Typer(help="The locked system that packages are built in.", no_args_is_help=True)


def _made(session: Session) -> Path:
    from wmlce.builder import build_root, sandbox
    from wmlce.recipes.recipe_set import load_source_lock
    from wmlce.sources.store import replan_when_moved

    layout = session.layout

    def attempt() -> Path:
        return build_root.make(layout, build_root.read(layout), load_source_lock(layout), session.say)

    root = replan_when_moved(attempt, session.say)
    sandbox.require(root)
    return root


@app.command("make")
def build_root_make(context: Context) -> None:
    """Fetch and unpack the build root, and try whether it can be entered."""
    session = session_of(context)
    root = _made(session)
    session.answer({"build-root": str(root)}, str(root))


@app.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def build_root_run(
    context: Context,
    command: Annotated[
        list[str], typer.Argument(help="The command and its arguments.", metavar="COMMAND...")
    ],
    env: Annotated[
        str | None,
        typer.Option("--env", help="Activate this environment: a name, or a prefix with a '/' in it."),
    ] = None,
    write: Annotated[
        list[Path] | None,
        typer.Option("--write", help="A folder that the command may change; default: the working folder."),
    ] = None,
    read: Annotated[
        list[Path] | None, typer.Option("--read", help="A file or folder more that the command sees.")
    ] = None,
) -> None:
    """Run a command in the build root: its compilers and programs, no network, nothing else of this machine.

    The clone is there under its own path, to be read. Compile what shall run on older systems like this:

      wmlce build-root run --env dev --write build/ddl-core -- cmake --build build/ddl-core
    """
    session = session_of(context)
    prefix = None
    if env is not None:
        prefix = Path(env).resolve() if "/" in env else session.layout.envs / env
        if not (prefix / "conda-meta").is_dir():
            raise WmlceError(
                f"{prefix} is not an environment", remedy=f"make it first: wmlce env create {prefix.name}"
            )
    writable = [path.resolve() for path in (write or [Path.cwd()])]
    readable = [path.resolve() for path in read or []]
    raise typer.Exit(run_inside(session, command, prefix, writable, readable))


def run_inside(
    session: Session,
    command: Sequence[str],
    prefix: Path | None,
    writable: Sequence[Path],
    readable: Sequence[Path] = (),
) -> int:
    """Runs a command in the build root and returns its exit code as a shell has it.

    Args:
        prefix: Environment to activate.
        writable: Folders that the command may change.
        readable: Files and folders that it sees beside these, the clone and the environment.
    """
    from wmlce.builder import sandbox

    root = _made(session)
    working_folder = Path.cwd()
    readable = [session.layout.root, *readable]
    arguments = list(command)
    if prefix is not None:
        readable.append(prefix)
        arguments = ["/bin/bash", "-c", _ACTIVATE, "bash", str(prefix), *arguments]
    for path in [*writable, *readable]:
        if not path.exists():
            raise WmlceError(f"{path} does not exist", remedy="make it first, or name another with --write")
    inside = sandbox.Sandbox(
        root=root,
        # what is read first, as a folder that may be changed can lie in it
        readable={str(path): path for path in readable},
        writable={str(path): path for path in writable},
        folder=str(working_folder)
        if any(working_folder.is_relative_to(path) for path in [*writable, *readable])
        else "/",
    )
    command_line = inside.command_line(arguments, new_session=sandbox.can_type_into_terminals())
    done = subprocess.run(command_line, env=sandbox.environment(HOME="/tmp"), check=False)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


_ACTIVATE = """
export CONDA_PREFIX=$1 PATH=$1/bin:$PATH
shift
for script in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do
  [ ! -f "$script" ] || . "$script"
done
exec "$@"
"""
