"""`wmlce channel serve`: a web server for a channel, to try a client with before a real server has it.

It serves whole files and parts of them, tells clients that keep an index whether theirs is still the current
one, and hides files whose names begin with a dot, which are those of unfinished work.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from urllib.parse import unquote, urlsplit

from wmlce.util.errors import WmlceError

_TYPES = {
    ".json": "application/json",
    ".zst": "application/zstd",
    ".conda": "application/octet-stream",
}
_RANGE = re.compile(r"^bytes=(\d*)-(\d*)$")
_IDLE_LIMIT_S = 60.0
_BLOCK = 1 << 18


def part_of(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and the one after the last that a Range header asks for; None: the whole file. An IndexError
    if the file has no such part. More than one part at once is answered with the whole file.
    """
    match = _RANGE.match(header or "")
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, end = max(0, size - int(last)), size
        if int(last) == 0:
            raise IndexError(header)
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= size:
        raise IndexError(header)
    return start, end


def handler(folder: Path, say: Callable[[str], None]) -> type[BaseHTTPRequestHandler]:
    """Answers GET and HEAD with the files of `folder`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "wmlce"
        sys_version = ""
        timeout = _IDLE_LIMIT_S

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def _answer(self, *, body: bool) -> None:
            path = self._file()
            try:
                stream = path.open("rb") if path is not None and path.is_file() else None
            except OSError:
                stream = None
            if stream is None:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            with stream:
                facts = os.fstat(stream.fileno())
                tag = f'"{facts.st_mtime_ns:x}-{facts.st_ino:x}-{facts.st_size:x}"'
                if tag in self.headers.get("If-None-Match", ""):
                    self.send_response(HTTPStatus.NOT_MODIFIED)
                    self.send_header("ETag", tag)
                    self.end_headers()
                    return
                byte_range = self.headers.get("Range")
                if self.headers.get("If-Range", tag) != tag:
                    byte_range = None
                try:
                    part = part_of(byte_range, facts.st_size)
                except IndexError:
                    self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
                    self.send_header("Content-Range", f"bytes */{facts.st_size}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                start, end = part or (0, facts.st_size)
                self.send_response(HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.OK)
                if part:
                    self.send_header("Content-Range", f"bytes {start}-{end - 1}/{facts.st_size}")
                assert path is not None
                self.send_header("Content-Type", _TYPES.get(path.suffix, "application/octet-stream"))
                self.send_header("Content-Length", str(end - start))
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("Last-Modified", formatdate(facts.st_mtime, usegmt=True))
                self.send_header("ETag", tag)
                self.send_header("Cache-Control", "no-cache")
                self.end_headers()
                stream.seek(start)
                while body and start < end and (block := stream.read(min(_BLOCK, end - start))):
                    self.wfile.write(block)
                    start += len(block)

        def _file(self) -> Path | None:
            """The file that is asked for; None for whatever is not one of the channel's."""
            names = [name for name in unquote(urlsplit(self.path).path).split("/") if name]
            if any(name.startswith(".") or "\0" in name for name in names):
                return None
            return folder.joinpath(*names)

        def log_message(self, format: str, *args: object) -> None:
            say(f"{self.address_string()} {format % args}")

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that has gone away is no error of the server


@contextmanager
def listening(
    folder: Path, say: Callable[[str], None], *, port: int, bind: str
) -> Iterator[tuple[_Server, str]]:
    """The server, and the address under which clients reach it."""
    try:
        address = ipaddress.ip_address(bind)
    except ValueError as error:
        raise WmlceError(
            f"--bind {bind} is not an address of a network interface",
            remedy="127.0.0.1 is this machine alone, 0.0.0.0 all networks that it is in",
        ) from error
    _Server.address_family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        server = _Server((bind, port), handler(folder, say))
    except OSError as error:
        reasons = {errno.EADDRINUSE: "another program uses it", errno.EACCES: "you are not allowed to use it"}
        raise WmlceError(
            f"cannot listen on port {port} of {bind}: {reasons.get(error.errno or 0, error.strerror)}",
            remedy="name another port: --port N, or --port 0 for any that is free",
        ) from error
    with server:
        host = socket.getfqdn() if address.is_unspecified else bind
        host = f"[{host}]" if ":" in host else host
        yield server, f"http://{host}:{server.server_address[1]}"


def until_stopped(server: _Server) -> None:
    """Serve until SIGINT or SIGTERM."""

    def stop(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


def commands(url: str, package: str = "powerai") -> dict[str, str]:
    """How clients install from a channel at `url`, by client."""
    return {
        "conda": f"conda create --name {package} --override-channels --channel {url} {package}",
        "mamba": f"mamba create --name {package} --override-channels --channel {url} {package}",
        "pixi": f"pixi init --channel {url} {package} && cd {package} && pixi add {package}",
    }
