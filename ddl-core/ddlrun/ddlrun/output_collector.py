"""The output of a host's ranks, as they write it: from their pipes to ddlrun, past mpirun.

mpirun holds what has no line end, and takes time with the square of a line's length. So each rank, before its
program begins (start/rank_start.py), makes its own pipes, and hands their reading ends to a collector of its
host by a Unix socket: ddlrun itself, or on another host the agent that runs mpirun's daemon there
(start/host_agent.py), which sends frames to ddlrun by one connection. What a rank leaves behind may hold the
pipes open: nobody waits for that.

Standard library only, and nothing of this package: each host's agent loads this file.
"""

import contextlib
import fcntl
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import partial

#: The name of the collector's socket, for the ranks of its host.
VARIABLE = "DDLRUN_COLLECTOR"
#: What a rank is told of its output, with blanks between: which of 1 and 2 ddlrun itself has as terminals
#: ("-": none), their columns and rows, and how an agent reaches ddlrun: addresses, port and token.
OUTPUT_VARIABLE = "DDLRUN_OUTPUT"
TOKEN_BYTES = 16
#: Before each piece of an agent's connection: the rank, whether it is standard error, the length in bytes.
FRAME = struct.Struct("!I?I")
PIECE = 1 << 18
_REQUEST_LONGEST = 8192
_PIPE_BYTES = 1 << 20
_CONNECT_SECONDS = 5.0
_GREETING_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
_CREDENTIALS = struct.Struct("3i")

#: Takes a piece of a rank: rank, whether it is standard error, bytes.
Take = Callable[[int, bool, bytes], None]


def is_of_same_user(peer: socket.socket) -> bool:
    """Whether the other end of a Unix socket is a process of this user."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())


def accepted(listener: socket.socket) -> socket.socket | None:
    """The connection that waits at a listener; None where this process may open no more files."""
    try:
        return listener.accept()[0]
    except OSError:
        time.sleep(_PAUSE_SECONDS)
        return None


class Collector:
    """Reads the pipes of this host's ranks in a thread of its own."""

    def __init__(self, take: Take, ready: Callable[[str], bool] = lambda _: True) -> None:
        """A collector that waits for ranks.

        Args:
            take: Gets every piece. While it does not return, the ranks' pipes fill up.
            ready: Told the way to ddlrun before the first pieces of a rank; False sends the rank's output
                through the launcher.
        """
        self._take, self._ready = take, ready
        self.name = f"ddlrun-{os.urandom(16).hex()}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Without a place in the file system: images and hosts may have different ones.
        self._listener.bind(f"\0{self.name}")
        self._listener.listen(1024)
        self._selector = selectors.DefaultSelector()
        self._watch(self._listener, self._accept)
        self._waking, self._wake = socket.socketpair()
        self._watch(self._waking, lambda: None)
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, seconds: float | None = None) -> bool:
        """Take what the pipes hold, then close them: the ranks have ended. False: after so many seconds it
        was not all taken.
        """
        self._over = True
        self._wake.send(b".")
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # ---- in the thread

    def _watch(self, source: "socket.socket | int", act: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, act)

    def _run(self) -> None:
        try:
            while not self._over:
                for key, _ in self._selector.select(self._pause()):
                    key.data()
                self._idle()
            self._drain()
        finally:
            # Also after a failure here: ranks would wait for room in their pipes, for ever.
            for key in list(self._selector.get_map().values()):
                self._forget(key.fd)
            self._listener.close()

    def _drain(self) -> None:
        """Take what is left: the ranks are gone, and all that they have written is in the pipes."""
        self._forget(self._waking.fileno())
        while events := self._selector.select(0):
            for key, _ in events:
                key.data()

    def _pause(self) -> float | None:
        """How long nothing need be done without input."""
        return None

    def _idle(self) -> None:
        """Called after each round."""

    def _forget(self, number: int) -> None:
        with contextlib.suppress(KeyError, ValueError):
            key = self._selector.unregister(number)
            if isinstance(key.fileobj, int):
                os.close(number)

    def _accept(self) -> None:
        connection = accepted(self._listener)
        if connection is None:
            return
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_GREETING_SECONDS)
            if not is_of_same_user(connection):
                return
            text, numbers, _, _ = socket.recv_fds(connection, _REQUEST_LONGEST, 2)
            try:
                number_text, _, way = text.decode().partition(" ")
                rank = int(number_text)
                if len(numbers) != 2 or not self._ready(way):
                    raise ValueError("no way")
            except ValueError:
                for number in numbers:
                    os.close(number)
                connection.sendall(b"-")
                return
            for number, is_error in zip(numbers, (False, True), strict=True):
                os.set_blocking(number, False)
                with contextlib.suppress(OSError):  # a terminal, or a user's limit
                    fcntl.fcntl(number, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
                self._watch(number, partial(self._read, number, rank, is_error))
            connection.sendall(b"+")

    def _read(self, number: int, rank: int, is_error: bool) -> None:
        try:
            data = os.read(number, PIECE)
        except BlockingIOError:
            return
        except OSError:  # a terminal that nobody has open any more
            data = b""
        if data:
            self._take(rank, is_error, data)
        else:
            self._forget(number)


class Sender:
    """An agent's connection to ddlrun, made when the first rank tells the way."""

    def __init__(self) -> None:
        self._connection: socket.socket | None = None
        self._way: str | None = None

    def ready(self, way: str) -> bool:
        """Whether ddlrun is reached by this way."""
        if self._way is None:
            self._way = way
            self._connection = self._connected(way)
        return self._connection is not None and way == self._way

    @staticmethod
    def _connected(way: str) -> socket.socket | None:
        addresses, port, token = way.split()
        for address in addresses.split(","):
            with contextlib.suppress(OSError, ValueError):
                connection = socket.create_connection((address, int(port)), timeout=_CONNECT_SECONDS)
                connection.settimeout(_GREETING_SECONDS)
                connection.sendall(bytes.fromhex(token))
                if connection.recv(1) != b"+":
                    continue  # somebody else's address, on another network
                connection.settimeout(None)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return connection
        return None

    def send(self, rank: int, is_error: bool, data: bytes) -> None:
        """Send a piece; when ddlrun has gone, to nobody: the job is about to be ended."""
        if self._connection:
            try:
                self._connection.sendall(FRAME.pack(rank, is_error, len(data)) + data)
            except OSError:
                self._connection.close()
                self._connection = None

    def close(self) -> None:
        if self._connection:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)
                self._connection.close()
