"""Jobs of others on this machine: what is measured beside them says nothing about it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path

_STEP = re.compile(rb"slurmstepd: \[(\d+)\.")
_LIMIT_S = 20


def jobs(proc: Path = Path("/proc")) -> list[str]:
    """Numbers of Slurm's jobs that have a step or this node, but for the job of this process."""
    numbers = _allocated()
    for path in proc.glob("[0-9]*/cmdline"):
        try:
            match = _STEP.match(path.read_bytes())
        except OSError:
            continue
        if match:
            numbers.add(match[1].decode())
    return sorted(numbers - {os.environ.get("SLURM_JOB_ID", "")}, key=int)


def _allocated() -> set[str]:
    """A job whose ranks were started by ssh has no step on a node."""
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    command = ["squeue", "--noheader", "--states=running,suspended,completing", "--format=%A", "-w", node]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return set()  # no Slurm, or a node of another name
    return set(re.findall(r"^\d+$", done.stdout, re.MULTILINE))
