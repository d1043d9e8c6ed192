"""`wmlce validate`: is this cluster right, and as fast as it should be? An environment's own command."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from wmlce.cli.session import Context, session_of
from wmlce.util.errors import WmlceError

COMMAND = "bin/wmlce-validate"
SETTINGS = {"ignore_unknown_options": True, "help_option_names": []}


def validate_command(
    context: Context,
    arguments: Annotated[
        list[str] | None, typer.Argument(help="See `wmlce validate --help`.", metavar="[OPTION]...")
    ] = None,
) -> None:
    """Prove that a cluster computes rightly and trains as fast as it should, or name what is at fault."""
    session = session_of(context)
    options = list(arguments or [])
    clone = None
    if session.root is not None or "CONDA_PREFIX" not in os.environ:
        try:
            clone = session.layout.root
        except WmlceError:
            pass  # no clone here: an environment has to be named
    prefix = find_environment(options, os.environ, clone)
    if session.as_json:
        options.append("--json")
    sys.stdout.flush()
    command = str(prefix / COMMAND)
    os.execv(command, [command, *options])


def find_environment(options: Sequence[str], variables: Mapping[str, str], clone: Path | None) -> Path:
    """The environment of --prefix, else the active one, else the clone's."""
    named = _prefix_of(options)
    if named is not None:
        tried = [named]
    else:
        active = variables.get("CONDA_PREFIX")
        tried = [Path(active)] if active else []
        tried += [clone / "build/envs/powerai"] if clone else []
    for prefix in tried:
        if os.access(prefix / COMMAND, os.X_OK):
            return prefix.absolute()
    raise WmlceError(
        f"no {COMMAND} in {', '.join(map(str, tried))}" if tried else "no environment is active",
        remedy="activate an environment that holds powerai or ddl-bench, or name it: --prefix DIR",
    )


def _prefix_of(options: Sequence[str]) -> Path | None:
    for word, following in pairwise([*options, None]):
        assert word is not None
        if word == "--prefix" and following is not None:
            return Path(following)
        if word.startswith("--prefix="):
            return Path(word.partition("=")[2])
    return None
