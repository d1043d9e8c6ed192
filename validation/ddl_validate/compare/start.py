"""How the processes of a way are started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..allreduce.place import Place
from .ways import Way

# The same for every way: one thread computes, and TensorFlow tells errors alone.
_VARIABLES = {"TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1"}


def command(where: Place, prefix: Path, packages: Path | None, way: Way, program: Sequence[str]) -> list[str]:
    """The command line that starts them, of the environment `prefix` and a folder of packages beside it."""
    variables = {**_VARIABLES, **where.variables}
    if packages:
        variables["PYTHONPATH"] = str(packages.resolve())
    return where.on_first_host(
        [
            str(prefix / "bin/ddlrun"),
            "-q",
            # With a coordinator DDL takes no part.
            *where.hosts(more=way.coordinator, described=not way.coordinator),
            *way.options,
            *(word for name, value in variables.items() for word in ("-x", f"{name}={value}")),
            *program,
        ]
    )
