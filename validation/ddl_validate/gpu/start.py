"""Starting ranks of this host with ddlrun, and reading what each of them found."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.mpi import MPI_AS_ROOT
from ..common.own_package import module_command, module_variables
from ..common.running import RunFailed, run_program
from .errors import GpuError

#: The launcher notices its own limit first, and says whose time was up.
_SPARE_SECONDS = 20.0


@dataclass(frozen=True)
class Starter:
    """Starts programs of ranks in an environment. folder: for logs and what the ranks leave. limit: seconds
    of a program."""

    prefix: Path
    folder: Path
    limit: float

    def program(
        self,
        command: Sequence[str],
        ranks: int,
        title: str,
        options: str = "",
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """The output of a program on so many ranks; GpuError where it fails. options: of DDL."""
        ddlrun = [str(self.prefix / "bin" / "ddlrun"), "-H", f"localhost:{ranks}", "-skip-checks"]
        ddlrun += ["-gpus", "shared", "-timeout", f"{self.limit:g}"]
        ddlrun += ["-ddloption", options] if options else []
        log = self.folder / f"{title}.log"
        environment = {
            **MPI_AS_ROOT,
            **module_variables(),
            "PATH": os.pathsep.join([str(self.prefix / "bin"), os.environ.get("PATH", os.defpath)]),
            **(variables or {}),
        }
        try:
            return run_program([*ddlrun, *command], log, self.limit + _SPARE_SECONDS, title, environment)
        except RunFailed as error:
            raise GpuError(str(error)) from error
        except OSError as error:
            raise GpuError(f"{ddlrun[0]}: {error}; name an environment of powerai with --prefix") from error

    def module(
        self,
        name: str,
        arguments: Sequence[str],
        settings: Mapping[str, Any],
        ranks: int,
        title: str,
        options: str = "",
        variables: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        """What each rank found, in their order; GpuError with the words of the first that failed."""
        with tempfile.TemporaryDirectory(prefix="ranks.", dir=self.folder) as folder:
            command = module_command(self.prefix, name, *arguments, folder, json.dumps(settings))
            failed: GpuError | None = None
            try:
                self.program(command, ranks, title, options, variables)
            except GpuError as error:
                failed = error
            files = [Path(folder) / f"rank-{rank}.json" for rank in range(ranks)]
            reports = [json.loads(file.read_text()) if file.exists() else {} for file in files]
        for rank, report in enumerate(reports):
            if "failed" in report:
                raise GpuError(f"rank {rank}: {report['failed']}")
        if failed:
            raise failed
        if not all(reports):
            raise GpuError(f"{title}: not every rank wrote its report")
        return reports
