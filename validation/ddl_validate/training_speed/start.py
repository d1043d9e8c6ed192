"""How the ranks of a configuration are started."""

from __future__ import annotations

import os
from pathlib import Path

from ..allreduce.place import Place
from .configurations import Configuration


def command(where: Place, prefix: Path, configuration: Configuration, program: list[str]) -> list[str]:
    """The command line that starts them, of the environment `prefix`; each on a core of its own where there
    are enough."""
    if configuration.by_horovodrun:
        start = [str(prefix / "bin/horovodrun"), "-np", str(where.ranks)]
        # it looks for mpirun there
        path = f"PATH={prefix / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}"
        return ["env", path, "TF_CPP_MIN_LOG_LEVEL=2", *start, str(prefix / "bin/python"), *program]
    passed = {"TF_CPP_MIN_LOG_LEVEL": "2", **where.variables, **configuration.variables}
    variables = [word for name, value in passed.items() for word in ("-x", f"{name}={value}")]
    return where.on_first_host(
        [
            *(str(prefix / "bin/ddlrun"), *where.hosts(), "-cores", "1", *variables),
            *(str(prefix / "bin/python"), *program),
        ]
    )
