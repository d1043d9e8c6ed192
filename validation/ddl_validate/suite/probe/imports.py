"""`python -m …probe.imports SECONDS`: imports every framework of the environment, in processes of their own:
one that crashes hides no other.

What belongs together is imported by one process, as a training does it. Where that fails, each of the rest
is tried alone.

Tells the host, the boot of its kernel, and of each package that is installed its version and the seconds of
its import, or the error. Needs the standard library alone.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from . import outside
from .lines import tell

# by group; module: the packages that may tell its version
GROUPS: tuple[dict[str, tuple[str, ...]], ...] = (
    {
        "numpy": ("numpy",),
        "mpi4py": ("mpi4py",),
        "ddl": ("ddl",),
        "tf_cnn_benchmarks": ("tf-cnn-benchmarks",),
        "chainer": ("chainer",),
    },
    {
        "tensorflow": ("tensorflow", "tensorflow-cpu"),
        "keras": ("keras",),
        "tf_keras": ("tf-keras",),
        "ddl.tensorflow": (),
        "horovod.tensorflow": ("horovod",),
    },
    {"torch": ("torch",), "ddl.torch": (), "horovod.torch": ("horovod",)},
)
_IMPORT = """\
import importlib, json, sys, time
for name in sys.argv[1:]:
    began = time.monotonic()
    found = importlib.import_module(name)
    version = str(getattr(found, "__version__", ""))
    print("@module", json.dumps([name, version, time.monotonic() - began]), flush=True)
"""
_TAIL = 300  # characters of an error


def installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def of_group(packages: Mapping[str, Sequence[str]], limit: float) -> dict[str, dict[str, Any]]:
    """The imports of a group."""
    installed_modules = [module for module in packages if installed(module)]
    reports, error = imported(installed_modules, limit)
    for module in installed_modules:
        if module not in reports:
            alone, error = imported([module], limit)
            reports[module] = alone.get(module) or {"error": error or "no result was printed"}
        version = next(filter(None, map(version_of, packages[module])), "")
        if version:
            reports[module]["version"] = version
    return reports


def imported(modules: Sequence[str], limit: float) -> tuple[dict[str, dict[str, Any]], str | None]:
    """The modules that one process could import one after the other, and what ended it before its end."""
    if not modules:
        return {}, None
    error = None
    environment = {**outside.variables(), "TF_CPP_MIN_LOG_LEVEL": "2"}
    try:
        done = outside.run([sys.executable, "-P", "-c", _IMPORT, *modules], limit, environment)
        out = done.stdout
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
            error = (lines[-1] if lines and done.returncode > 0 else how)[:_TAIL]
    except subprocess.TimeoutExpired as late:
        out = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else ""
        error = f"not imported within {limit:.0f} s"
    reports = {}
    for line in out.splitlines():
        if line.startswith("@module "):
            name, version, seconds = json.loads(line.removeprefix("@module "))
            reports[name] = {"version": version, "seconds": seconds}
    return reports, error


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def main(limit: float) -> None:
    modules = {name: report for group in GROUPS for name, report in of_group(group, limit).items()}
    facts = {"host": socket.gethostname(), "boot": outside.boot(), "python": sys.version.split()[0]}
    tell({**facts, "modules": modules})


if __name__ == "__main__":
    main(float(sys.argv[1]))
