"""Asking a scheduler's own command, within a limit."""

import subprocess
from collections.abc import Mapping, Sequence

SECONDS = 5.0


def ask(words: Sequence[str], environment: Mapping[str, str]) -> tuple[str | None, str]:
    """What the command printed, and, where that is None, why there is nothing."""
    shown = " ".join(words)
    try:
        done = subprocess.run(
            words,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return None, f"{words[0]} was not found on PATH"
    except OSError as error:
        return None, f"`{shown}` cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        return None, f"`{shown}` did not answer within {SECONDS:g} s"
    if done.returncode:
        last = " / ".join(done.stderr.strip().splitlines()[-2:])[-300:]
        return None, f"`{shown}` ended with code {done.returncode}: {last}"
    return done.stdout, ""
