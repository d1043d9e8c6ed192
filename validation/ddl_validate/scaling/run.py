"""One benchmark run: start it with ddlrun, watch it, read its result.

The figure that counts is what users know: the program's own line `total images/sec:`.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..common.running import RunFailed, run_program, tail_of

TOTAL = re.compile(r"^total images/sec: ([0-9.]+)$", re.MULTILINE)
STEP = re.compile(r"^(\d+)\timages/sec: ([0-9.]+) \+/- ([0-9.]+) \(jitter = ([0-9.]+)\)\t([-+0-9.einfa]+)")


@dataclass
class Step:
    """One printed step: images per second so far (mean, standard error, jitter) and the loss."""

    step: int
    images_per_sec: float
    uncertainty: float
    jitter: float
    loss: float


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


def parse_output(text: str) -> tuple[float, list[Step]]:
    """The total and the printed steps of one run's output; ValueError without a total."""
    total = TOTAL.findall(text)
    if not total:
        raise ValueError("no line 'total images/sec:'")
    steps = []
    for line in text.splitlines():
        if match := STEP.match(line):
            number, speed, uncertainty, jitter, loss = match.groups()
            steps.append(Step(int(number), float(speed), float(uncertainty), float(jitter), float(loss)))
    return float(total[-1]), steps


def run(
    env: Path,
    ranks: int,
    program: list[str],
    log: Path,
    *,
    ddlrun_options: list[str] | None = None,
    timeout: float = 1200.0,
    progress: Callable[[str, float], None] | None = None,
) -> Run:
    """Start `program` (arguments of tf_cnn_benchmarks) on `ranks` ranks with the ddlrun of `env`.

    `timeout` is in seconds. `progress(line, seconds)` is called for every output line. The output is kept in
    `log`. Raises RunFailed with the last lines when the run fails, prints no result, or exceeds its time.
    """
    with tempfile.TemporaryDirectory(prefix="scaling-") as scratch:
        result = Path(scratch) / "result.json"
        command = [
            str(env / "bin" / "ddlrun"),
            "-np",
            str(ranks),
            *(ddlrun_options or []),
            "python",
            "-m",
            "tf_cnn_benchmarks",
            *program,
            f"--result_json={result}",
        ]
        started = time.monotonic()
        text = run_program(command, log, timeout, f"the run at {ranks} rank(s)", progress=progress)
        seconds = time.monotonic() - started
        try:
            total, steps = parse_output(text)
        except ValueError as error:
            raise RunFailed(
                f"the run at {ranks} rank(s): {error}; log {log}; its last lines:\n{tail_of(text)}"
            ) from None
        details: dict[str, Any] = json.loads(result.read_text()) if result.is_file() else {}
    shown = [argument for argument in command if not argument.startswith("--result_json=")]
    return Run(ranks, total, seconds, shown, str(log), steps, details.get("ddl") or {})
