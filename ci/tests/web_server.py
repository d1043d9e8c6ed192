"""Web servers on this machine, for what fetches files: of a folder, or with answers of a test's own."""

from __future__ import annotations

import hashlib
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

_BLOCK = 20_000


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a test ends clients on purpose


class Handler(BaseHTTPRequestHandler):
    """The base of answers, which writes nothing to the terminal."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of a server, by https if it has a context."""
    with _Server(("127.0.0.1", 0), handler) as server:
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(timeout=10)


class Files:
    """How the files of a folder are sent, as mirrors do: also from a byte on, and with their states (ETag).

    requests: the paths of requests, each with its range.
    cut: names of files whose first answer breaks off halfway.
    pause_s: the time between two blocks of a file.
    """

    def __init__(self, folder: Path, *, ranges: bool = True, pause_s: float = 0.0) -> None:
        self.folder = folder
        self.ranges = ranges
        self.pause_s = pause_s
        self.requests: list[str] = []
        self.cut: set[str] = set()
        self.url = ""

    @contextmanager
    def served(self, context: ssl.SSLContext | None = None) -> Iterator[Files]:
        """Itself, while it can be reached at `url`."""
        files = self

        class Answer(Handler):
            def do_GET(self) -> None:
                files._send(self)

        with listening(Answer, context) as port:
            self.url = f"http{'s' if context else ''}://127.0.0.1:{port}"
            yield self

    def _send(self, answer: BaseHTTPRequestHandler) -> None:
        header = answer.headers.get("Range", "")
        self.requests.append(f"{answer.path} {header}".strip())
        file = self.folder / unquote(answer.path).lstrip("/")
        if not file.is_file():
            answer.send_error(404)
            return
        body = file.read_bytes()
        part = re.fullmatch(r"bytes=(\d+)-", header) if self.ranges else None
        start, end = int(part[1]) if part else 0, len(body)
        if start > end:
            answer.send_error(416)
            return
        answer.send_response(206 if part else 200)
        if part:
            answer.send_header("Content-Range", f"bytes {start}-{end - 1}/{end}")
        answer.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        answer.send_header("Content-Length", str(end - start))
        answer.end_headers()
        if file.name in self.cut:
            self.cut.remove(file.name)
            end //= 2
        for block in range(start, end, _BLOCK):
            time.sleep(self.pause_s)
            answer.wfile.write(body[block : min(block + _BLOCK, end)])
