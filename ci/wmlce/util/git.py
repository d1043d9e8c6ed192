"""Asking git about a clone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from wmlce.util.errors import WmlceError

_LIMIT_S = 300.0
# a shell in a hook of git has these, and they name another repository
_OF_HOOKS = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE")


def ask(root: Path, *arguments: str, limit_s: float = _LIMIT_S) -> subprocess.CompletedProcess[bytes]:
    """What git says in `root`, which may belong to somebody else; its hooks are for people's commits and are
    not run. An error where git is missing or does not end; what its exit code means is the caller's to say.
    """
    command = ["git", "-c", f"safe.directory={root}", "-c", "core.hooksPath=/dev/null", "-C", str(root)]
    env = {key: value for key, value in os.environ.items() if key not in _OF_HOOKS}
    try:
        return subprocess.run(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**env, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"},
            timeout=limit_s,
            check=False,
        )
    except OSError as error:
        raise WmlceError(f"git cannot be run: {error.strerror}", remedy="install git") from error
    except subprocess.TimeoutExpired as error:
        raise WmlceError(
            f"git {arguments[0]} in {root} did not end within {limit_s:.0f} s",
            remedy="see what holds it (a file system, another git), then run the command again",
        ) from error
