"""What the ranks write, on its way to ddlrun's own output: from the pipes of this host's ranks, and from the
agents of other hosts (see output_collector.py).
"""

import contextlib
import resource
import socket
import time
from collections.abc import Callable

from ..addresses import create_server, new_token, own_addresses, same_token
from ..output_collector import FRAME, PIECE, TOKEN_BYTES, Collector, accepted

_GREETING_SECONDS = 5.0
# Programs write whole buffers of this size when nobody waits for the text, and cut lines there.
_BUFFER_BYTES = 4096
# How long the beginning of a line waits for its end, while other ranks may write: where it was meant to be
# seen at once (a progress bar, a prompt), and where a full buffer has cut it.
_SHOWN_SECONDS, _CUT_SECONDS = 0.05, 2.0
_HELD_LONGEST = 64 << 20
_SILENT_SECONDS = 3.0
# Open besides the connections: the ranks of this host, and whatever else.
_OTHER_FILES = 1024


class WholeLines:
    """Holds the beginnings of lines of one stream for a moment, so that several ranks' lines stay whole."""

    def __init__(self) -> None:
        self._held: dict[int, bytearray] = {}
        self._until: dict[int, float] = {}

    def feed(self, rank: int, data: bytes, now: float) -> bytes:
        """What of it is to be shown now."""
        end = data.rfind(b"\n") + 1
        ready = b""
        if end:
            ready = bytes(self._held.pop(rank, b"")) + data[:end]
        if end < len(data):
            held = self._held.setdefault(rank, bytearray())
            held += data[end:]
            if len(held) > _HELD_LONGEST:
                return ready + bytes(self._held.pop(rank))
            is_cut = len(data) % _BUFFER_BYTES == 0
            self._until[rank] = now + (_CUT_SECONDS if is_cut else _SHOWN_SECONDS)
        return ready

    @property
    def due(self) -> float | None:
        """When the next of them is to be shown."""
        return min((self._until[rank] for rank in self._held), default=None)

    def take_due(self, now: float) -> bytes:
        """What has waited long enough."""
        return self._taken([rank for rank in self._held if self._until[rank] <= now])

    def take_all(self) -> bytes:
        return self._taken(list(self._held))

    def _taken(self, ranks: list[int]) -> bytes:
        return b"".join(bytes(self._held.pop(rank)) for rank in ranks)


def _allow_files(count: int) -> None:
    """Let this process have so many connections, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + _OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class RankOutput(Collector):
    """Gathers the output of all ranks of a start, and writes it."""

    def __init__(
        self,
        take: Callable[[int, bool, bytes], bytes],
        write: tuple[Callable[[bytes], None], Callable[[bytes], None]],
        *,
        rest: Callable[[bool], bytes],
        ranks: int,
        hosts: int,
    ) -> None:
        """Begins to listen.

        Args:
            take: Makes of a piece what is shown of it.
            write: For standard output and standard error.
            rest: What `take` still holds at the end of standard output or error.
            ranks: How many there are.
            hosts: How many other hosts some of them are on.
        """
        super().__init__(self._show)
        self._take_piece, self._rest, self._write_stream = take, rest, write
        self._lines = (WholeLines(), WholeLines()) if ranks > 1 else None
        self._token = new_token()
        self._agents: set[_Agent] = set()
        self._last_seen = time.monotonic()
        self._tcp: socket.socket | None = None
        if hosts:
            _allow_files(hosts)
            self._tcp = create_server(backlog=1024)
            self._watch(self._tcp, self._accept_agent)

    @property
    def way(self) -> str:
        """How agents of other hosts reach this; empty where there are none."""
        if self._tcp is None:
            return ""
        return f"{','.join(own_addresses())} {self._tcp.getsockname()[1]} {self._token.hex()}"

    # ---- in the thread

    def _show(self, rank: int, is_error: bool, data: bytes) -> None:
        text = self._take_piece(rank, is_error, data)
        if self._lines:
            text = self._lines[is_error].feed(rank, text, time.monotonic())
        self._write_stream[is_error](text)
        self._last_seen = time.monotonic()  # after a reader that may be slow

    def _pause(self) -> float | None:
        dues = [lines.due for lines in self._lines or () if lines.due is not None]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def _idle(self) -> None:
        for lines, write in zip(self._lines or (), self._write_stream, strict=False):
            write(lines.take_due(time.monotonic()))

    def _accept_agent(self) -> None:
        assert self._tcp
        connection = accepted(self._tcp)
        if connection is None:
            return
        connection.settimeout(_GREETING_SECONDS)
        agent = _Agent(connection, self._token, self._show)
        self._agents.add(agent)
        self._watch(connection, lambda: self._hear(agent))

    def _hear(self, agent: "_Agent") -> None:
        if not agent.hear():
            self._agents.discard(agent)
            self._forget(agent.connection.fileno())
            agent.connection.close()

    def _drain(self) -> None:
        super()._drain()
        self._last_seen = time.monotonic()
        while any(agent.is_known for agent in self._agents):
            for key, _ in self._selector.select(_SILENT_SECONDS / 10):
                key.data()
            if time.monotonic() > self._last_seen + _SILENT_SECONDS:
                break  # of hosts that are lost
        for is_error, write in enumerate(self._write_stream):
            held = self._lines[is_error].take_all() if self._lines else b""
            write(held + self._rest(bool(is_error)))
        if self._tcp:
            self._tcp.close()
        for agent in self._agents:
            agent.connection.close()


class _Agent:
    """The connection of another host."""

    def __init__(
        self, connection: socket.socket, token: bytes, take: Callable[[int, bool, bytes], None]
    ) -> None:
        self.connection, self._token, self._take = connection, token, take
        self.is_known = False
        self._data = bytearray()

    def hear(self) -> bool:
        """Take what has come; False at its end, and where it is none of this job's."""
        try:
            data = self.connection.recv(PIECE)
        except OSError:
            return False
        self._data += data
        if not self.is_known and len(self._data) >= TOKEN_BYTES:
            if not same_token(bytes(self._data[:TOKEN_BYTES]), self._token):
                return False
            self.is_known = True
            del self._data[:TOKEN_BYTES]
            with contextlib.suppress(OSError):
                self.connection.sendall(b"+")
        at = 0
        while self.is_known and len(self._data) - at >= FRAME.size:
            rank, is_error, size = FRAME.unpack_from(self._data, at)
            if size > PIECE:
                return False
            if len(self._data) - at - FRAME.size < size:
                break
            at += FRAME.size
            self._take(rank, is_error, bytes(self._data[at : at + size]))
            at += size
        del self._data[:at]
        return bool(data)
