"""Starting a program, watching it, keeping what it says in a log."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

_LAST = "; its last lines:"


class RunFailed(Exception):
    """A program gave no result; the text names the log."""

    @property
    def line(self) -> str:
        """In one line: what happened, the program's own last words, and the log."""
        first, _, rest = str(self).partition(_LAST)
        lines = [line.strip().removeprefix("|").strip() for line in rest.splitlines()]
        # ddlrun ends with the place of its own log
        last = [line for line in lines if line and not line.startswith("The log is ")][-1:]
        return ": ".join([first, *last])


def run_text(
    command: Sequence[str], timeout: float, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a short command, whatever its exit code will be. OSError or TimeoutExpired where it gives none."""
    return subprocess.run(
        command,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def run_program(
    command: list[str],
    log: Path,
    timeout: float,
    title: str,
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
        raise RunFailed(f"{title} {how}; log {log}{_LAST}\n{tail_of(text)}")
    return text


def _watch(
    command: list[str],
    log: Path,
    timeout: float,
    variables: Mapping[str, str],
    progress: Callable[[str, float], None] | None,
) -> int | None:
    """Exit code of `command`, or None when it had to be ended because its time was up."""
    # So that progress is seen as it is made, and an error stands behind what was printed before it.
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONUNBUFFERED": "1", **os.environ, **variables}
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


def tail_of(text: str, lines: int = 15) -> str:
    """The last lines of a log, set off from the message that quotes them."""
    return "\n".join(f"  | {line}" for line in text.splitlines()[-lines:])
