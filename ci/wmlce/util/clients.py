"""Running the archives' own clients (apt-get, pip) with a time limit and with errors that say what failed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wmlce.util.errors import WmlceError

_running: set[subprocess.Popen[str]] = set()
_running_lock = threading.Lock()


@dataclass(frozen=True)
class CommandResult:
    """What a client said: exit code, and standard output and standard error together as lines."""

    code: int
    lines: list[str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def run_client(
    command: Sequence[str],
    *,
    title: str,
    say: Callable[[str], None],
    limit_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    heartbeat_s: float = 15.0,
    status: Callable[[], str] | None = None,
) -> CommandResult:
    """Run to the end or to the limit; every `heartbeat_s` says that it is still at work, with what `status`
    tells, or its last line.
    """
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {}), "LC_ALL": "C.UTF-8"},
            cwd=cwd,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise WmlceError(
            f"{title}: there is no command {command[0]} on this machine", remedy="run `wmlce doctor`"
        ) from error
    with _running_lock:
        _running.add(process)
    lines: deque[str] = deque(maxlen=4000)
    assert process.stdout is not None

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip("\n"))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    started = time.monotonic()
    last_report = started
    try:
        while True:
            try:
                code = process.wait(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if now - started > limit_s:
                    raise WmlceError(
                        f"{title}: did not finish within {limit_s:.0f} s",
                        detail=list(lines)[-5:],
                        remedy="check the network (wmlce doctor) and run the command again",
                    ) from None
                if now - last_report >= heartbeat_s:
                    last_report = now
                    last = status() if status else lines[-1][:80] if lines else ""
                    say(f"still {title}, {now - started:.0f} s ({last})")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        with _running_lock:
            _running.discard(process)
    reader.join(timeout=5)
    return CommandResult(code, list(lines))


def end_all() -> None:
    """End the clients that other threads run now, with everything that they started."""
    with _running_lock:
        for process in _running:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
