"""A scheduler's own remote shell with the manners of ssh, as a program for ddlrun and for mpirun:

    blaunch|pbs_tmrsh HOST WORD…   the words, joined by blanks, are what /bin/sh of that host does

LSF's blaunch hands words to a shell there, or not, as its site likes. PBS's pbs_tmrsh never does, gives the
command no input, and its output to the files of the job. So the words travel as digits, which no shell
changes, and for PBS input and output go through a connection back to here.
"""

import contextlib
import importlib.util
import os
import secrets
import socket
import subprocess
import sys
import threading
from pathlib import Path

_TOKEN_BYTES = 16
_CONNECT_SECONDS = 8.0
_GREETING_SECONDS = 5.0
_POLL_SECONDS = 0.1


def listen() -> tuple[socket.socket, str]:
    """A socket that listens, and the addresses of this host with its port, for the other end's words."""
    # The module is loaded from its file, without the rest of the package.
    spec = importlib.util.spec_from_file_location("addresses", Path(__file__).parents[1] / "addresses.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    listener = module.create_server()
    return listener, f"{','.join([*module.own_addresses(), '127.0.0.1'])} {listener.getsockname()[1]}"


def _there(digits: str, addresses: str = "", port: str = "", token: str = "") -> int:
    """On the other host: do what the digits say, by a connection where addresses are given."""
    if addresses:
        for address in addresses.split(","):
            with contextlib.suppress(OSError):
                connection = socket.create_connection((address, int(port)), timeout=_CONNECT_SECONDS)
                break
        else:
            print(f"ddlrun: none of {addresses} is reached from here", file=sys.stderr)
            return 255
        connection.settimeout(None)
        connection.sendall(bytes.fromhex(token))
        for number in (0, 1, 2):
            os.dup2(connection.fileno(), number)
    os.execv("/bin/sh", ["/bin/sh", "-c", os.fsdecode(bytes.fromhex(digits))])


def _accepted(
    listener: socket.socket, child: "subprocess.Popen[bytes]", token: bytes
) -> socket.socket | None:
    """The connection that knows the token; None when the command has ended without one."""
    listener.settimeout(_POLL_SECONDS)
    while True:
        over = child.poll() is not None
        try:
            connection, _ = listener.accept()
            connection.settimeout(_GREETING_SECONDS)
            received = b""
            while len(received) < _TOKEN_BYTES and (more := connection.recv(_TOKEN_BYTES - len(received))):
                received += more
            if secrets.compare_digest(received, token):
                connection.settimeout(None)
                return connection
            connection.close()
        except OSError:
            if over:
                return None


def _send_input(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, 1 << 16):
            connection.sendall(data)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)


def _connected(shell: str, host: str, command: list[str]) -> int:
    """Run a command on another host, with input and output through a connection back; its code."""
    token = secrets.token_bytes(_TOKEN_BYTES)
    listener, contact = listen()
    with listener:
        way = [*contact.split(), token.hex()]
        child = subprocess.Popen([shell, host, *command, *way], stdin=subprocess.DEVNULL)
        connection = _accepted(listener, child, token)
    if connection is None:
        print(f"ddlrun: {shell} {host} ended with code {child.returncode}", file=sys.stderr)
        return child.returncode if 0 < child.returncode < 256 else 255
    threading.Thread(target=_send_input, args=(connection,), daemon=True).start()
    while data := connection.recv(1 << 16):
        while data:
            data = data[os.write(1, data) :]
    code = child.wait()
    return code if 0 <= code < 256 else 255


def main(argv: list[str]) -> int:
    if argv[0] == "there":
        return _there(*argv[1:])
    shell, host, *text = argv
    digits = os.fsencode(" ".join(text)).hex()
    command = [sys.executable, "-I", "-S", os.path.abspath(__file__), "there", digits]
    if shell == "pbs_tmrsh":
        return _connected(shell, host, command)
    os.execvp(shell, [shell, host, *command])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (OSError, KeyboardInterrupt) as problem:
        print(f"ddlrun: {sys.argv[1]}: {problem}", file=sys.stderr)
        sys.exit(255)
