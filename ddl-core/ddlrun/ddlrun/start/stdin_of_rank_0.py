"""The standard input of rank 0: ddlrun's own, whatever host the rank is on.

A process beside the program (see rank_start.py) fetches it from ddlrun (run/stdin_feed.py) into a pipe. It
is no child of the program's, keeps nothing of it open, and ends when the program does or reads no more.
"""

import os
import select
import signal
import socket
import sys

#: Addresses of ddlrun's host, port and token; no program sees it.
VARIABLE = "DDLRUN_STDIN"
TOKEN_BYTES = 16
_CONNECT_SECONDS = 5.0
_PIECE = 1 << 16


def _connected(way: str) -> socket.socket:
    """Raises OSError where no address is reached."""
    addresses, port, token = way.split()
    problem = OSError(f"no address in {addresses!r}")
    for address in addresses.split(","):
        try:
            connection = socket.create_connection((address, int(port)), timeout=_CONNECT_SECONDS)
        except OSError as error:
            problem = error
            continue
        connection.settimeout(None)
        connection.sendall(bytes.fromhex(token))
        return connection
    raise problem


def _fetch(connection: socket.socket, pipe: int) -> None:
    """Copy until the end of the input, or until nobody reads the pipe."""
    watch = select.poll()
    watch.register(connection, select.POLLIN)
    watch.register(pipe, 0)  # the end of its readers is always told
    while True:
        if any(number == pipe for number, _ in watch.poll()):
            return
        data = connection.recv(_PIECE)
        if not data:
            return
        while data:
            data = data[os.write(pipe, data) :]


def _fetch_beside(connection: socket.socket, pipe: int) -> None:
    """In a process whose parent is none of the program's."""
    if os.fork():
        return
    try:
        if not os.fork():
            for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(ending, signal.SIG_IGN)  # the program decides when it ends
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nothing, number)
            for name in os.listdir("/proc/self/fd"):
                if int(name) > 2 and int(name) not in (pipe, connection.fileno()):
                    try:
                        os.close(int(name))
                    except OSError:
                        pass  # of the listing itself
            os.chdir("/")
            _fetch(connection, pipe)
    except OSError:
        pass  # the program, or ddlrun, has ended
    finally:
        os._exit(0)


def attach(way: str) -> None:
    """Make ddlrun's standard input this process's own. Ends it where ddlrun is not reached."""
    try:
        connection = _connected(way)
    except OSError as error:
        print(
            f"[ERROR DDL-2-16] standard input does not reach rank 0: {error}; on host {os.uname().nodename}, "
            f"from {way.split()[0]}; open the way to ddlrun's host, or start without input: </dev/null",
            file=sys.stderr,
        )
        sys.exit(1)
    reading, writing = os.pipe()
    _fetch_beside(connection, writing)
    os.wait()
    os.close(writing)
    connection.close()
    os.dup2(reading, 0)
    os.close(reading)
