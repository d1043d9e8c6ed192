"""A package index on this machine, with a user and a password, that notes who asked for what."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from web_server import Handler, listening

USER, PASSWORD = "reader", "s3cret-word"


class Index:
    """Serves the files of a folder in the simple repository API; `asked` are the paths of requests.

    Files wait until `open` is set, as it is from the start.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.port = 0
        self.open = threading.Event()
        self.open.set()

    @property
    def url(self) -> str:
        return f"http://{USER}:{PASSWORD}@127.0.0.1:{self.port}/simple"

    def projects(self) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for path in sorted(self.folder.iterdir()):
            found.setdefault(path.name.split("-")[0], []).append(path)
        return found


def _handler(index: Index) -> type[Handler]:
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Answer(Handler):
        def do_GET(self) -> None:
            index.asked.append(self.path)
            parts = [part for part in self.path.split("/") if part]
            if self.headers.get("Authorization") != expected:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="index"')
                self.end_headers()
            elif len(parts) == 2 and parts[0] == "simple" and parts[1] in index.projects():
                links = "".join(
                    f'<a href="/files/{path.name.replace("+", "%2B")}">{path.name}</a>\n'
                    for path in index.projects()[parts[1]]
                )
                self._answer("text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode())
            elif parts[0] == "files" and (index.folder / parts[1].replace("%2B", "+")).is_file():
                name = parts[1].replace("%2B", "+")
                index.open.wait(120)
                self._answer("application/octet-stream", (index.folder / name).read_bytes())
            else:
                self.send_error(404)

        def _answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Answer


@contextmanager
def serving(folder: Path) -> Iterator[Index]:
    index = Index(folder)
    with listening(_handler(index)) as index.port:
        try:
            yield index
        finally:
            index.open.set()
