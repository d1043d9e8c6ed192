"""Output that a launcher labels line by line: `3: text`."""

import re
from collections.abc import Iterator

_LABEL = re.compile(rb" *(\d{1,9}): ?")
_LINE_LONGEST = 1 << 20


class LabelSplitter:
    """Takes the labels off. A line without one is the launcher's, as is one that begins with ``own`` after
    its label: Slurm's daemons speak in the place of a rank.

    The launcher labels every line of a rank, so that a rank's own text cannot pass for a label.
    """

    def __init__(self, own_label: re.Pattern[bytes] | None = None) -> None:
        self._own = own_label
        self._held = b""

    def feed(self, data: bytes, last: bool = False) -> Iterator[tuple[int | None, bytes]]:
        *whole, rest = (self._held + data).split(b"\n")
        lines = [line + b"\n" for line in whole]
        if last or len(rest) > _LINE_LONGEST:
            lines.append(rest)
            rest = b""
        self._held = rest
        for line in filter(None, lines):
            match = _LABEL.match(line)
            if match is None or (self._own and self._own.match(line, match.end())):
                yield None, line[match.end() :] if match else line
            else:
                yield int(match[1]), line[match.end() :]
