"""Asking a scheduler's own command, within a limit."""

import subprocess
from collections.abc import Mapping, Sequence

from ...processes import run_bounded

SECONDS = 20.0


def ask(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str | None, str]:
    """What the command printed, and, where that is None, why there is nothing."""
    command_text = " ".join(command)
    try:
        done = run_bounded(command, "", SECONDS, environment)
    except FileNotFoundError:
        return None, f"{command[0]} was not found on PATH"
    except OSError as error:
        return None, f"`{command_text}` cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        return None, f"`{command_text}` did not answer within {SECONDS:g} s"
    if done.returncode:
        last = " / ".join(done.stderr.strip().splitlines()[-2:])[-300:]
        return None, f"`{command_text}` ended with code {done.returncode}: {last}"
    return done.stdout, ""
