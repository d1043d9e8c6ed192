"""The one program behind all these commands: which one it is, its own name says."""

from __future__ import annotations

import sys
from pathlib import Path

from wml_ce_commands.components import GONE, SAMPLES, TESTS

COMMANDS = sorted(
    {*GONE, *(f"{name}-install-samples" for name in SAMPLES), *(f"{name}-test" for name in TESTS)}
)


def run() -> int:
    """Runs the command that this process was started as."""
    command, arguments = Path(sys.argv[0]).name, sys.argv[1:]
    if command in GONE:
        print(f"{command}: {GONE[command]}", file=sys.stderr)
        return 1
    if command not in COMMANDS:
        print(f"{command}: the commands are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    if command.endswith("-install-samples"):
        from wml_ce_commands.samples import install

        return install(command.removesuffix("-install-samples"), arguments)
    from wml_ce_commands.testing import test

    return test(command.removesuffix("-test"), arguments)
