"""The command `wmlce` of an installed module: users extend the read-only environment in places of their own,
and validate the hosts with it.

Uses only the standard library, as it runs with the environment's own Python.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from wmlce.envs.clone import clone
from wmlce.envs.overlay import overlay
from wmlce.util.errors import WmlceError

FILES = (
    "__init__.py",
    "envs/__init__.py",
    "envs/clone.py",
    "envs/extend.py",
    "envs/overlay.py",
    "util/__init__.py",
    "util/errors.py",
    "util/files.py",
)
"""What the command consists of."""

VALIDATE = "validate"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wmlce",
        description="Extends the environment of this module in a place of your own; validates hosts with it.",
    )
    groups = parser.add_subparsers(title="commands", required=True, metavar="{env,validate}")
    groups.add_parser(
        VALIDATE, help="Prove that hosts compute rightly and as fast as they should.", add_help=False
    )
    commands = groups.add_parser("env", help="Environments of your own.").add_subparsers(
        dest="command", required=True, metavar="{overlay,clone}"
    )
    over = commands.add_parser(
        "overlay", help="A virtual environment over the module: small, made in seconds, for pip install."
    )
    full = commands.add_parser("clone", help="A whole copy, in which every package can be changed.")
    full.add_argument("--copy", action="store_true", help="Share no file with the module by hard links.")
    for command in (over, full):
        command.add_argument("target", metavar="FOLDER", type=Path, help="A folder that does not exist yet.")
    return parser


def main(prefix: Path, arguments: list[str]) -> int:
    """Run the command for the environment at `prefix`; returns the exit code."""
    if arguments[:1] == [VALIDATE]:
        return _validate(prefix, arguments[1:])
    options = _parser().parse_args(arguments)
    target = options.target.absolute()

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    try:
        if options.command == "overlay":
            overlay(prefix, target, say=say)
            print(f"{target} is ready; use it with: source {target}/bin/activate")
        else:
            result = clone(prefix, target, say=say, copy=options.copy)
            print(
                f"{target} is ready ({result.files} files); use it with: "
                f"export PATH={target}/bin:$PATH, or conda activate {target}"
            )
    except WmlceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0


def _validate(prefix: Path, arguments: list[str]) -> int:
    """The environment's own command, which has options of its own."""
    command = prefix / "bin" / "wmlce-validate"
    if not os.access(command, os.X_OK):
        print(
            f"error: there is no {command}; ask for a module with the package ddl-bench (powerai has it)",
            file=sys.stderr,
        )
        return 1
    os.execv(command, [str(command), *arguments])
