"""Jobs of others on this machine: what is measured beside them says nothing about it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path

_STEP = re.compile(rb"slurmstepd: \[(\d+)\.")
_LIMIT_S = 20
_ATTEMPTS = 3
_NO_SLURM = re.compile(r"Invalid node name|Could not establish a configuration source|cannot .*slurm\.conf")
"""Errors of squeue where no job of Slurm can be on this machine."""


def by(proc: Path = Path("/proc")) -> str:
    """What uses this machine, or might: `job 7, 9 runs here`; nothing if no job of Slurm does, but for this
    process's.
    """
    try:
        numbers = _allocated()
    except (OSError, subprocess.SubprocessError) as error:
        lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
        return f"jobs may run here, squeue did not say ({lines[0] if lines else type(error).__name__})"
    for path in proc.glob("[0-9]*/cmdline"):
        try:
            match = _STEP.match(path.read_bytes())
        except OSError:
            continue
        if match:
            numbers.add(match[1].decode())
    others = sorted(numbers - {os.environ.get("SLURM_JOB_ID", "")}, key=int)
    return f"job {', '.join(others)} runs here" if others else ""


def _allocated() -> set[str]:
    """Numbers of jobs that Slurm has put on this node, also without a step there, as those started by ssh. An
    error where it uses this node and does not answer; to a job, only the processes of others tell then.
    """
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    in_job = "SLURM_JOB_ID" in os.environ
    is_node = "SLURMD_NODENAME" in os.environ and not in_job  # as for a health check
    command = ["squeue", "--noheader", "--states=running,suspended,completing", "--format=%A", "-w", node]
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=True,
            )
        except FileNotFoundError:
            if is_node:
                raise
            return set()
        except subprocess.SubprocessError as error:
            elsewhere = not is_node and _NO_SLURM.search(str(getattr(error, "stderr", "")))
            if in_job or elsewhere:
                return set()
            if attempt == _ATTEMPTS:
                raise
        else:
            return set(re.findall(r"^\d+$", done.stdout, re.MULTILINE))
    raise AssertionError("the last attempt returns or raises")
