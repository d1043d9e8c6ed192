"""Hands what is piped into ddlrun to rank 0, wherever that is: `zcat data.gz | ddlrun python train.py`.

Open MPI 5.0 would hand it on, but never tells rank 0 that its input is at the end. So rank 0's host fetches
it by a connection of its own (start/stdin_of_rank_0.py), under every launcher. Nothing is read before, and
never more than rank 0 takes and the connection holds. What is typed goes another way (see launcher_process).
"""

import contextlib
import os
import select
import socket
import threading

from ..addresses import TOKEN_BYTES, create_server, new_token, own_addresses, same_token

_GREETING_SECONDS = 5.0
_PIECE = 1 << 16


class StdinFeed:
    """While it is open, rank 0 of one start can fetch the input. What it leaves is the next start's."""

    def __init__(self) -> None:
        self._token = new_token()
        self._listener = create_server()
        self._connection: socket.socket | None = None
        self._closed, self._close = os.pipe()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def way(self) -> str:
        """What rank 0 has to know."""
        port = self._listener.getsockname()[1]
        return " ".join([",".join([*own_addresses(), "127.0.0.1"]), str(port), self._token.hex()])

    def __enter__(self) -> "StdinFeed":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._close)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        if self._connection:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(_GREETING_SECONDS)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    if self._knows_the_token(connection):
                        self._connection = connection
                        self._pump(connection)
                        return

    def _knows_the_token(self, connection: socket.socket) -> bool:
        received = b""
        with contextlib.suppress(OSError):
            connection.settimeout(_GREETING_SECONDS)
            while len(received) < TOKEN_BYTES and (more := connection.recv(TOKEN_BYTES - len(received))):
                received += more
        connection.settimeout(None)
        return same_token(received, self._token)

    def _pump(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                ready, _, _ = select.select([0, self._closed, connection.fileno()], [], [])
                if self._closed in ready or connection.fileno() in ready:
                    return  # rank 0 sends nothing: it reads no more
                data = os.read(0, _PIECE)
                if not data:
                    break
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            # until rank 0 has it all
            select.select([self._closed, connection.fileno()], [], [])
