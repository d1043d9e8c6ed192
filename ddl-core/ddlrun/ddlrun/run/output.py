"""The last lines of each rank's output."""

import re
from collections import deque

_LINES_KEPT = 12
# Of a longer line: its beginning, where an error has its number and says what is wrong, and its end.
_BEGINNING_KEPT = 700
_END_KEPT = 300
_CUT = b" ... "
# Of one piece: backtraces are many lines.
_BYTES_KEPT = 16 << 10
# Open MPI's report of a signal: it is shown where it came, and would push out what the program said itself.
_BACKTRACE = re.compile(rb"\[[^\s\[\]]+:\d+\] (?:\*\*\* |Signal(?: code)?: |Failing at address: |\[ ?\d+\] )")


def _shortened(line: bytes) -> bytes:
    """What a terminal shows of a line, or of one that goes on; without the middle of a long one."""
    body = line.rstrip(b"\r")
    text = body.rpartition(b"\r")[2]
    if len(text) > _BEGINNING_KEPT + len(_CUT) + _END_KEPT:
        text = text[:_BEGINNING_KEPT] + _CUT + text[-_END_KEPT:]
    return text + line[len(body) :][:1]


class Tails:
    """The last lines of each rank. Progress bars count as one line: what follows the last carriage return."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[bytes]] = {}
        self._open: dict[tuple[int, bool], bytes] = {}

    def add(self, rank: int, is_error: bool, data: bytes) -> None:
        data = data[-_BYTES_KEPT:]
        tail = self._lines.setdefault(rank, deque(maxlen=_LINES_KEPT))
        *lines, rest = (self._open.get((rank, is_error), b"") + data).split(b"\n")
        tail.extend(_shortened(line) for line in lines if not _BACKTRACE.match(line))
        self._open[rank, is_error] = _shortened(rest)

    def of(self, rank: int) -> list[str]:
        """Last lines of a rank, as text."""
        lines = list(self._lines.get(rank, ()))
        lines += [rest for (owner, _), rest in self._open.items() if owner == rank and rest]
        texts = (line.rstrip(b"\r").decode(errors="replace") for line in lines)
        printable = ["".join(c for c in text if c.isprintable() or c == "\t") for text in texts]
        while printable and not printable[-1].strip():
            printable.pop()
        return printable[-_LINES_KEPT:]
