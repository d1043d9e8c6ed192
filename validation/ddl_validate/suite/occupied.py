"""Jobs of others on this machine: what is measured beside them says nothing about it."""

from __future__ import annotations

import os
import re
from pathlib import Path

_STEP = re.compile(rb"slurmstepd: \[(\d+)\.")


def jobs(proc: Path = Path("/proc")) -> list[str]:
    """Numbers of Slurm's jobs that have a step here, but for the job of this process."""
    numbers = set()
    for path in proc.glob("[0-9]*/cmdline"):
        try:
            match = _STEP.match(path.read_bytes())
        except OSError:
            continue
        if match:
            numbers.add(match[1].decode())
    return sorted(numbers - {os.environ.get("SLURM_JOB_ID", "")}, key=int)
