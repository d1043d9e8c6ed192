"""One benchmark run: start it with ddlrun, watch it, read its result.

The figure that counts is what users know: the program's own line `total images/sec:`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

TOTAL = re.compile(r"^total images/sec: ([0-9.]+)$", re.MULTILINE)
STEP = re.compile(r"^(\d+)\timages/sec: ([0-9.]+) \+/- ([0-9.]+) \(jitter = ([0-9.]+)\)\t([-+0-9.einfa]+)")


class RunFailed(Exception):
    """A benchmark run gave no result; the text names the log."""


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
                f"the run at {ranks} rank(s): {error}; log {log}; its last lines:\n{_tail(text)}"
            ) from None
        details: dict[str, Any] = json.loads(result.read_text()) if result.is_file() else {}
    shown = [argument for argument in command if not argument.startswith("--result_json=")]
    return Run(ranks, total, seconds, shown, str(log), steps, details.get("ddl") or {})


def run_program(
    command: list[str],
    log: Path,
    timeout: float,
    what: str,
    variables: Mapping[str, str] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> str:
    """The output of a command, which is kept in `log` too.

    `timeout` is in seconds; `what` names the command in errors; `variables` are added to the environment.
    Raises RunFailed with the last lines when it fails or exceeds its time.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    rc = _watch(command, log, timeout, variables or {}, progress)
    text = log.read_text(errors="replace")
    if rc != 0:
        how = f"exceeded its {timeout:.0f} s" if rc is None else f"ended with exit code {rc}"
        raise RunFailed(f"{what} {how}; log {log}; its last lines:\n{_tail(text)}")
    return text


def _watch(
    command: list[str],
    log: Path,
    timeout: float,
    variables: Mapping[str, str],
    progress: Callable[[str, float], None] | None,
) -> int | None:
    """Exit code of `command`, or None when it had to be ended because its time was up."""
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, **variables}
    started = time.monotonic()
    with log.open("wb") as sink:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        assert child.stdout is not None
        reader = threading.Thread(target=_copy, args=(child.stdout, sink, started, progress), daemon=True)
        reader.start()
        try:
            rc: int | None = child.wait(timeout)
        except subprocess.TimeoutExpired:
            rc = None
        except BaseException:
            _end(child)
            raise
        if rc is None:
            _end(child)
        reader.join(10)
    return rc


def _copy(
    source: IO[bytes], sink: IO[bytes], started: float, progress: Callable[[str, float], None] | None
) -> None:
    for raw in source:
        sink.write(raw)
        sink.flush()
        if progress:
            progress(raw.decode(errors="replace").rstrip(), time.monotonic() - started)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the launcher politely (it then ends its ranks), and after 10 s its whole process group."""
    child.terminate()
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(10)


def _tail(text: str, lines: int = 15) -> str:
    return "\n".join(f"  | {line}" for line in text.splitlines()[-lines:])
