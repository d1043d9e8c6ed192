"""`python -m …probe.login_module NAME`: what `module load NAME` gives in a login shell of this host.

Needs the standard library alone. The shell starts as after a login, with nothing of the job's environment.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from typing import Any

from . import outside
from .lines import tell

_LIMIT_SECONDS = 60.0
_SCRIPT = """\
type module >/dev/null 2>&1 || exit 41
module load "$1" || exit 42
printf '\\n<<%s\\n<<%s\\n' "$CONDA_PREFIX" "$(command -v ddlrun)"
"""
_STATES = {0: "loaded", 41: "no module command", 42: "failed"}


def load(name: str) -> dict[str, Any]:
    """state: one of _STATES; prefix, ddlrun: where they lie; message: what the module command said."""
    user = pwd.getpwuid(os.getuid())
    variables = {
        "HOME": os.environ.get("HOME") or user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": "/bin/bash",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "TERM": "dumb",
    }
    try:
        done = outside.run(["bash", "--login", "-c", _SCRIPT, "bash", name], _LIMIT_SECONDS, variables)
    except subprocess.TimeoutExpired:
        return {"state": "failed", "message": f"the login shell did not end within {_LIMIT_SECONDS:.0f} s"}
    except OSError as error:
        return {"state": "failed", "message": f"bash: {error.strerror}"}
    values = [line[2:] for line in done.stdout.splitlines() if line.startswith("<<")]
    state = _STATES.get(done.returncode, "failed")
    if state == "loaded" and len(values) == 2 and values[0]:
        return {"state": state, "prefix": os.path.realpath(values[0]), "ddlrun": os.path.realpath(values[1])}
    message = " ".join(done.stderr.split())[-500:] or (
        f"exit code {done.returncode}" if done.returncode else "it sets no CONDA_PREFIX"
    )
    return {"state": "failed" if state == "loaded" else state, "message": message}


if __name__ == "__main__":
    tell(load(sys.argv[1]))
