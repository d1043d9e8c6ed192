"""Where the ranks' output goes besides being shown: marked line by line, into one file for each rank."""

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from ..errors import Code, LaunchError

# Progress bars end their lines with a carriage return.
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r(?!\n|$)|\n)")
_LINE_LONGEST = 64 << 10
# Below the usual limit of a process.
_OPEN_FILES = 400


class Tagger:
    """Puts a mark before every line of a stream that several ranks write. Lines stay whole: the beginning of
    one is held until its end has come.
    """

    def __init__(self, tag: Callable[[int], bytes]) -> None:
        self._tag = tag
        self._held: dict[int, bytes] = {}

    def feed(self, rank: int, data: bytes) -> bytes:
        data = self._held.pop(rank, b"") + data
        tagged, at = bytearray(), 0
        for line in _LINE.finditer(data):
            tagged += self._tag(rank) + line[0]
            at = line.end()
        rest = data[at:]
        if len(rest) > _LINE_LONGEST:
            tagged += self._tag(rank) + rest + b"\n"
        elif rest:
            self._held[rank] = rest
        return bytes(tagged)

    def rest(self) -> bytes:
        """What has no end yet, each with one."""
        text = b"".join(
            self._tag(rank) + data.rstrip(b"\r") + b"\n" for rank, data in sorted(self._held.items())
        )
        self._held.clear()
        return text


class RankFiles:
    """One file for each rank, with everything it has written, as soon as it has come."""

    def __init__(self, folder: Path, ranks: int, warn: Callable[[str], None]) -> None:
        self._warn, self._lock = warn, threading.Lock()
        width = len(str(ranks - 1))
        self._paths = [folder / f"rank-{rank:0{width}d}.log" for rank in range(ranks)]
        self._open: dict[int, BinaryIO] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in self._paths:
                path.write_bytes(b"")
        except OSError as error:
            raise LaunchError(
                Code.FOLDER,
                f"the ranks' files cannot be made: {error.strerror}: {error.filename}",
                "in -output-folder",
                "name a folder that you may write to and that has room",
            ) from error

    def add(self, rank: int, data: bytes) -> None:
        with self._lock:
            if not 0 <= rank < len(self._paths):
                return
            try:
                self._file(rank).write(data)
            except OSError as error:
                # The job is worth more than its files.
                self._warn(f"the ranks' files in {self._paths[rank].parent} are incomplete: {error.strerror}")
                self._paths = []

    def _file(self, rank: int) -> BinaryIO:
        if rank not in self._open:
            if len(self._open) >= _OPEN_FILES:
                self._open.pop(next(iter(self._open))).close()
            self._open[rank] = self._paths[rank].open("ab", buffering=0)
        return self._open[rank]

    def close(self) -> None:
        with self._lock:
            for file in self._open.values():
                file.close()
            self._open.clear()
            self._paths = []


class OutputStreams:
    """What happens to the output of a run. hosts: of the ranks, in order, where the marks name them."""

    def __init__(
        self, tagged: bool, hosts: Sequence[str] | None = None, files: RankFiles | None = None
    ) -> None:
        self._hosts, self._files = hosts, files
        self._taggers = (Tagger(self._tag), Tagger(self._tag)) if tagged else None
        #: The output is more than shown as it comes.
        self.is_processed = tagged or files is not None

    def _tag(self, rank: int) -> bytes:
        host = f" {self._hosts[rank]}" if self._hosts and rank < len(self._hosts) else ""
        return f"[{rank}{host}] ".encode()

    def take(self, rank: int, is_error: bool, data: bytes) -> bytes:
        """Keep a piece of a rank's output; what of it is to be shown now."""
        if self._files:
            self._files.add(rank, data)
        return self._taggers[is_error].feed(rank, data) if self._taggers else data

    def rest(self, is_error: bool) -> bytes:
        """What is still to be shown when a stream has ended."""
        return self._taggers[is_error].rest() if self._taggers else b""

    def close(self) -> None:
        if self._files:
            self._files.close()
