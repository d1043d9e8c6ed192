"""`python -m ddl_validate.gpu.facts`: what this host's driver and NCCL say, as one line of JSON.

In a process of its own: a driver that hangs or ends its process does no harm to whoever asks.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..common.own_package import module_command, module_variables
from ..common.running import run_text
from .driver import Driver, version_text
from .errors import GpuError
from .nccl import Nccl

_LIMIT_SECONDS = 60


@dataclass(frozen=True)
class Facts:
    """driver: the CUDA that it supports, as in 12040; None: there is none, and problem says why. nccl: its
    release, or None, and without_nccl says why. gpus: their models."""

    driver: int | None = None
    problem: str = ""
    gpus: list[str] = field(default_factory=list)
    nccl: str | None = None
    without_nccl: str = ""

    @property
    def driver_text(self) -> str:
        return version_text(self.driver) if self.driver else ""


def current_environment() -> Facts:
    """Facts about this process's environment."""
    try:
        driver = Driver()
        gpus = [driver.device_name(ordinal) for ordinal in range(driver.device_count)]
        version = driver.version
    except GpuError as error:
        return Facts(problem=str(error))
    try:
        nccl, without = Nccl().version, ""
    except GpuError as error:
        nccl, without = None, str(error)
    return Facts(version, "" if gpus else "the driver shows no GPU", gpus, nccl, without)


def of_prefix(prefix: Path) -> Facts:
    """The same, asked in a process of the environment that the ranks will have."""
    command = module_command(prefix, "gpu.facts")
    try:
        done = run_text(command, _LIMIT_SECONDS, module_variables())
    except subprocess.TimeoutExpired:
        return Facts(problem=f"the driver did not answer in {_LIMIT_SECONDS} s; look at nvidia-smi and dmesg")
    except OSError as error:
        return Facts(problem=f"{command[0]}: {error}; name another environment with --prefix")
    if done.returncode:
        return Facts(problem=f"asking the driver failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return Facts(**json.loads(done.stdout))


if __name__ == "__main__":
    print(json.dumps(asdict(current_environment())))
