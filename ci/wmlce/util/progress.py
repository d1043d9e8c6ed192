"""What a person sees while something long runs: a live table on a terminal, plain lines with a heartbeat
elsewhere.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from wmlce.util.errors import printable

HEARTBEAT_S = 15.0


def clock(seconds: float) -> str:
    """12:05 for 725 s."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def last_line(path: Path, size: int = 4096) -> str:
    """The last non-empty line of a growing log."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - size))
            lines = [line.strip() for line in stream.read().decode(errors="replace").splitlines()]
    except OSError:
        return ""
    return printable(next((line for line in reversed(lines) if line), ""))


class Progress:
    """Lines of progress with the time since the start, on standard error: standard output is for results.

    `running` steps are shown with their own elapsed time and the last line of their log.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.quiet = quiet
        self.started = time.monotonic()
        self.total = 0
        self.finished = 0
        self._lock = threading.RLock()
        self._running: dict[str, tuple[str, float, Path | None]] = {}
        self._live: Live | None = None
        self._stop = threading.Event()
        self._estimate: Callable[[Mapping[str, float]], float] = lambda running: 0.0

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def say(self, text: str) -> None:
        """One line; safe from any thread."""
        if self.quiet:
            return
        text = printable(text)
        with self._lock:
            if self.console.is_terminal:
                self.console.print(Text(f"[{clock(self.elapsed()):>5}] {text}"))
            else:
                print(f"[{clock(self.elapsed()):>5}] {text}", file=sys.stderr, flush=True)

    def start(self, name: str, doing: str, log: Path | None = None) -> None:
        with self._lock:
            self._running[name] = (doing, time.monotonic(), log)

    def end(self, name: str) -> float:
        """Seconds that the step took."""
        with self._lock:
            _, started, _ = self._running.pop(name, ("", time.monotonic(), None))
        return time.monotonic() - started

    def time_left(self) -> str:
        """How long what is shown will take, for people."""
        with self._lock:
            running = {name: time.monotonic() - started for name, (_, started, _) in self._running.items()}
        minutes = round(self._estimate(running) / 60)
        return f"about {minutes} min left" if minutes > 1 else "about a minute left"

    def _table(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        with self._lock:
            running = list(self._running.items())
        for name, (doing, started, log) in running:
            table.add_row(
                Text(name, style="bold"), doing, clock(time.monotonic() - started),
                Text((last_line(log) if log else "")[:80], style="dim", overflow="ellipsis", no_wrap=True),
            )  # fmt: skip
        head = Text(
            f"{self.finished} of {self.total} done, {clock(self.elapsed())}, {self.time_left()}", style="cyan"
        )
        return Group(table, head)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_S):
            with self._lock:
                running = list(self._running.items())
            for name, (doing, started, log) in running:
                seconds = time.monotonic() - started
                if seconds >= HEARTBEAT_S:
                    tail = last_line(log)[:90] if log else ""
                    self.say(f"  … {name}: {doing} for {clock(seconds)}" + (f": {tail}" if tail else ""))

    @contextmanager
    def showing(self, total: int, estimate: Callable[[Mapping[str, float]], float]) -> Iterator[None]:
        """While inside, running steps are displayed. estimate: the seconds left, from those of what runs."""
        self.total, self.finished, self._estimate = total, 0, estimate
        if self.quiet:
            yield
        elif self.console.is_terminal:
            with Live(get_renderable=self._table, console=self.console, refresh_per_second=4, transient=True):
                yield
        else:
            self._stop.clear()
            beat = threading.Thread(target=self._beat, daemon=True)
            beat.start()
            try:
                yield
            finally:
                self._stop.set()
                beat.join(timeout=2)
