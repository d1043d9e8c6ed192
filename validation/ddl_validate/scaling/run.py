"""One benchmark run: start it with ddlrun, watch it, read its result.

The figure that counts is what users know: the program's own line `total images/sec:`.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..common.benchmark import Step, run_benchmark


@dataclass
class Run:
    """Result of one run.

    `images_per_sec` is the sum over all ranks; `plan` is what DDL says of itself (``ddl.describe()``).
    """

    ranks: int
    images_per_sec: float
    seconds: float
    command: list[str]
    log: str
    steps: list[Step] = field(default_factory=list)
    plan: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run(
    env: Path,
    ranks: int,
    program: list[str],
    log: Path,
    *,
    ddlrun_options: list[str] | None = None,
    processes: int = 1,
    timeout: float = 1200.0,
    progress: Callable[[str, float], None] | None = None,
) -> Run:
    """Start `program` (words after `python`) on `ranks` ranks with the ddlrun of `env`.

    `processes` print a total each. `timeout` is in seconds. `progress(line, seconds)` is called for every
    output line. The output is kept in `log`. Raises RunFailed with the last lines when the run fails, prints
    no result, or exceeds its time.
    """
    with tempfile.TemporaryDirectory(prefix="scaling-") as scratch:
        result = Path(scratch) / "result.json"
        command = [
            str(env / "bin" / "ddlrun"),
            "-np",
            str(ranks),
            *(ddlrun_options or []),
            "python",
            *program,
            f"--result_json={result}",
        ]
        started = time.monotonic()
        output = run_benchmark(command, log, timeout, f"the run at {ranks} rank(s)", processes, progress)
        seconds = time.monotonic() - started
        details: dict[str, Any] = json.loads(result.read_text()) if result.is_file() else {}
    public_command = [argument for argument in command if not argument.startswith("--result_json=")]
    return Run(ranks, output.speed, seconds, public_command, str(log), output.steps, details.get("ddl") or {})
