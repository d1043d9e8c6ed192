"""Imports every framework of the environment, each in a process of its own: one that crashes hides no other.

Prints a line of JSON: host, the boot of its kernel, and of each package that is installed its version and
the seconds of its import, or the error.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MARK = "@imports "
# module: the packages that may tell its version
PACKAGES = {
    "numpy": ("numpy",),
    "mpi4py": ("mpi4py",),
    "ddl": ("ddl",),
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "tf_keras": ("tf-keras",),
    "keras": ("keras",),
    "torch": ("torch",),
    "ddl.tensorflow": (),
    "ddl.torch": (),
    "horovod.tensorflow": ("horovod",),
    "horovod.torch": ("horovod",),
    "chainer": ("chainer",),
    "tf_cnn_benchmarks": ("tf-cnn-benchmarks",),
}
# a launcher's variables would make the child a second process of the same rank
_LAUNCHERS = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "SLURM_", "FLUX_", "JSM_", "DDL_", "DDLRUN_")
_TAIL = 300  # characters of an error


def installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def tried(module: str, limit: float) -> dict[str, Any]:
    """The import of one module in a process of its own."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}
    began = time.monotonic()
    code = f"import {module} as found; print('@version', getattr(found, '__version__', ''))"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**variables, "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not imported within {limit:.0f} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        return {"error": (lines[-1] if lines else how)[:_TAIL]}
    told = done.stdout.partition("@version")[2].strip()
    return {"version": version_of(module) or told, "seconds": time.monotonic() - began}


def version_of(module: str) -> str:
    for package in PACKAGES.get(module, ()):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return ""


def main(limit: float) -> None:
    found = {module: tried(module, limit) for module in PACKAGES if installed(module)}
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    told = {"host": socket.gethostname(), "boot": boot, "python": sys.version.split()[0], "modules": found}
    rank = int(os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or 0)
    print(MARK + json.dumps({"rank": rank, **told}), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
