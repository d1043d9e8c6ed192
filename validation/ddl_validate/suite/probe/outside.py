"""Programs that a rank starts and that must not take themselves for that rank, or see the job around it.

Needs the standard library alone.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_OF_A_JOB = (
    "OMPI_",
    "PMIX_",
    "PMI_",
    "PRTE_",
    "SLURM_",
    "DDL_",
    "DDLRUN_",
    "LSB_",
    "PBS_",
    "FLUX_",
    "JSM_",
)
_OF_A_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def variables() -> dict[str, str]:
    """This process's, without those of a job and of its ranks."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _OF_A_RANK and (not name.startswith(_OF_A_JOB) or "ALLOW_RUN_AS_ROOT" in name)
    }


def run(
    command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Both outputs and the exit code. environment: `variables()` where it is not given.

    OSError where it cannot be started, subprocess.TimeoutExpired after so many seconds.
    """
    return subprocess.run(
        command,
        env=dict(variables() if environment is None else environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )


def boot() -> str:
    """The boot of this host's kernel: hosts that share a machine have the same. Empty where not known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
