"""The ranks' output: mpirun marks each piece with its rank; here the marks are taken off and each rank's end
is kept.

mpirun's marks hold its own host name and pid, so a program cannot produce them by chance, and the bytes that
remain are exactly what the ranks wrote.
"""

import re
from collections import deque
from collections.abc import Iterator

_LINES_KEPT = 12
_LINE_KEPT = 500
_MARK_LONGEST = 400
# Open MPI's report of a signal: it is shown where it came, and would push out what the program said itself.
_BACKTRACE = re.compile(rb"\[[^\s\[\]]+:\d+\] (?:\*\*\* |Signal(?: code)?: |Failing at address: |\[ ?\d+\] )")


class Tails:
    """The last lines of each rank. Progress bars count as one line: what follows the last carriage return."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[bytes]] = {}
        self._open: dict[tuple[int, bool], bytes] = {}

    def add(self, rank: int, is_error: bool, data: bytes) -> None:
        tail = self._lines.setdefault(rank, deque(maxlen=_LINES_KEPT))
        *lines, rest = (self._open.get((rank, is_error), b"") + data).split(b"\n")
        tail.extend(line[-_LINE_KEPT:] for line in lines if not _BACKTRACE.match(line))
        self._open[rank, is_error] = rest[-_LINE_KEPT:]

    def of(self, rank: int) -> list[str]:
        """Last lines of a rank, as text."""
        lines = list(self._lines.get(rank, ()))
        lines += [rest for (owner, _), rest in self._open.items() if owner == rank and rest]
        texts = (line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace") for line in lines)
        printable = ["".join(c for c in text if c.isprintable() or c == "\t") for text in texts]
        while printable and not printable[-1].strip():
            printable.pop()
        return printable[-_LINES_KEPT:]


class Splitter:
    """Splits one stream of mpirun into pieces with their rank; None is mpirun itself."""

    def __init__(self, mpirun_pid: int) -> None:
        self._mark = re.compile(
            rb"\[prterun-[^\s\[\]@]{1,300}-%d@\d+,(\d{1,9})\]<std(?:out|err)>: " % mpirun_pid
        )
        self._held = b""
        self._rank: int | None = None
        self._at_line_start = True

    def feed(self, data: bytes, last: bool = False) -> Iterator[tuple[int | None, bytes]]:
        """Pieces of what has come so far. A possible beginning of a mark at the end is held back until more
        comes.
        """
        data = self._held + data
        self._held = b""
        at = 0
        for match in self._mark.finditer(data):
            yield from self._piece(data[at : match.start()])
            self._rank, at = int(match[1]), match.end()
            self._at_line_start = False
        data = data[at:]
        if not last:
            bracket = data.rfind(b"[")
            # A mark has no second "[" inside and no line end.
            if bracket >= 0 and len(data) - bracket < _MARK_LONGEST and b"\n" not in data[bracket:]:
                data, self._held = data[:bracket], data[bracket:]
        yield from self._piece(data)

    def _piece(self, data: bytes) -> Iterator[tuple[int | None, bytes]]:
        """A line without a mark of its own is mpirun's: it marks every line of a rank."""
        for line in data.splitlines(keepends=True):
            if self._at_line_start:
                self._rank = None
            yield self._rank, line
            self._at_line_start = line.endswith(b"\n")
