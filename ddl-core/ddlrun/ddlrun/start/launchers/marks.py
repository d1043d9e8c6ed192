"""Output that mpirun marks piece by piece with the rank that wrote it.

The marks hold mpirun's own host name and pid, so a program cannot produce them by chance, and the bytes that
remain are exactly what the ranks wrote.
"""

import re
from collections.abc import Iterator

_MARK_LONGEST = 400


class MarkSplitter:
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
