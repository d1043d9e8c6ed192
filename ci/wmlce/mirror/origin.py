"""Where a mirror reads a channel: a folder, or a web server that is not trusted.

A server may answer without end, or a byte a minute, or send the client on to another host. So an answer has a
largest size and a lowest speed, and a login is for the host that it was written for: it is in ~/.netrc, never
in an address, and is not sent on after a redirect.
"""

from __future__ import annotations

import base64
import io
import netrc
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from pathlib import Path
from typing import Any, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from wmlce.util.errors import WmlceError

TRIES = 4
INDEX_LIMIT = 64 << 20
"""The largest file beside the packages; ours have up to 2 MB."""
_ANSWER_LIMIT_S = 60.0
_PAUSE_S = 0.2
_REDIRECTS = 5
_WINDOW_S = 60.0
_LEAST_BYTES = 60_000
"""In so many seconds of waiting at least so many bytes arrive: 1 kB/s."""
_BLOCK = 1 << 18


def pause_s(attempt: int) -> float:
    """How long to wait after an attempt that failed."""
    return _PAUSE_S * float(2**attempt)


class Stream(Protocol):
    """A file that is being received."""

    def read(self, size: int) -> bytes: ...
    def close(self) -> None: ...


class _Answer:
    """The body of an answer, as it arrives."""

    def __init__(self, answer: HTTPResponse) -> None:
        self._answer = answer
        self._waited, self._bytes = 0.0, 0

    def read(self, size: int) -> bytes:
        started = time.monotonic()
        # what the block arrives in, such as lines of its size, may never end
        with _ended_after(_socket_of(self._answer), 2 * _WINDOW_S) as late:
            try:
                block = self._answer.read1(size)
            except (OSError, HTTPException, ValueError) as error:
                if not late.is_set():
                    raise
                raise TimeoutError(f"nothing of use has arrived within {2 * _WINDOW_S:.0f} s") from error
        if late.is_set():
            raise TimeoutError(f"nothing of use has arrived within {2 * _WINDOW_S:.0f} s")
        self._waited += time.monotonic() - started
        self._bytes += len(block)
        if self._waited >= _WINDOW_S:
            if self._bytes < _LEAST_BYTES:
                raise TimeoutError(
                    f"the server sends too slowly: {self._bytes} bytes in {self._waited:.0f} s"
                )
            self._waited, self._bytes = 0.0, 0
        if not block and self._answer.length:
            raise IncompleteRead(b"", self._answer.length)
        return block

    def close(self) -> None:
        self._answer.close()


@contextmanager
def _ended_after(sock: socket.socket | None, seconds: float) -> Iterator[threading.Event]:
    """Ends the connection when this takes longer; yields what is set then."""
    late = threading.Event()

    def end() -> None:
        late.set()
        if sock is not None:
            # also the socket of TLS: its own method would wait for the thread that reads
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


def _socket_of(answer: HTTPResponse) -> socket.socket | None:
    """The socket that an answer is read from, which its connection no longer has."""
    return getattr(getattr(answer.fp, "raw", None), "_sock", None)


class _Limited:
    """A connection whose answer begins within a limit, however slowly its header arrives."""

    sock: socket.socket | None

    def getresponse(self) -> HTTPResponse:
        with _ended_after(self.sock, _ANSWER_LIMIT_S) as late:
            try:
                answer: HTTPResponse = super().getresponse()  # type: ignore[misc]
            except (OSError, HTTPException) as error:
                if not late.is_set():
                    raise
                raise TimeoutError(f"no answer has begun within {_ANSWER_LIMIT_S:.0f} s") from error
        if late.is_set():  # what has arrived of the header looks like a whole one
            raise TimeoutError(f"no answer has begun within {_ANSWER_LIMIT_S:.0f} s")
        return answer


class _Connection(_Limited, HTTPConnection):
    pass


class _SecureConnection(_Limited, HTTPSConnection):
    pass


class _Http(HTTPHandler):
    def http_open(self, req: Request) -> Any:
        return self.do_open(_Connection, req)


class _Https(HTTPSHandler):
    def https_open(self, req: Request) -> Any:
        return self.do_open(_SecureConnection, req, context=self._context)  # type: ignore[attr-defined]


def _opener() -> OpenerDirector:
    """Only http and https, and without redirects, which are for `_follow`: urllib sends the login along, and
    reads the answer to its end.
    """
    opener = OpenerDirector()
    for handler in (ProxyHandler(), _Http(), _Https(), HTTPDefaultErrorHandler(), HTTPErrorProcessor()):
        opener.add_handler(handler)
    return opener


def _login(host: str) -> str | None:
    """The header Authorization for a host, out of the user's netrc; only what is written for that very host:
    an entry `default` would go to wherever a redirect leads.
    """
    path = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    try:
        entry = netrc.netrc(str(path)).hosts.get(host)
        shared = path.stat().st_mode & 0o077
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError) as error:
        reason = error.msg if isinstance(error, netrc.NetrcParseError) else type(error).__name__
        raise WmlceError(f"{path} cannot be read: {reason}", remedy="correct it, or move it away") from error
    if entry is None:
        return None
    if shared:
        raise WmlceError(
            f"{path} holds the login for {host}, and others can read it", remedy=f"chmod 600 {path}"
        )
    user, _, password = entry
    return "Basic " + base64.b64encode(f"{user}:{password or ''}".encode()).decode()


class Origin:
    """Where a channel is read: a folder, or an address of a web server."""

    def __init__(self, text: str) -> None:
        parts = urlsplit(text)
        self.folder: Path | None = None
        if parts.scheme in ("http", "https"):
            host = parts.netloc.rpartition("@")[2]
            self.title = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
            if "@" in parts.netloc:
                raise WmlceError(
                    f"the address of {self.title} has a user name, a password or a token in it",
                    remedy="leave it out, and write it into ~/.netrc (chmod 600): machine "
                    f"{parts.hostname} login USER password PASSWORD",
                )
        elif parts.scheme == "file" or "://" not in text:
            self.folder = Path(unquote(parts.path) if parts.scheme else text).expanduser().absolute()
            self.title = str(self.folder)
            if not self.folder.is_dir():
                raise WmlceError(f"{self.title} is not a folder", remedy="name the folder of a channel")
        else:
            raise WmlceError(
                f"a channel cannot be mirrored from {parts.scheme}://",
                remedy="name a folder, or an address that begins with http:// or https://",
            )

    def open(self, name: str, offset: int = 0) -> tuple[Stream, int]:
        """A file from `offset` on, and where what is read really begins: 0 if the server has no parts."""
        if self.folder is not None:
            if not (self.folder / name).is_file():  # also what would never answer, such as a pipe
                raise FileNotFoundError(name)
            stream = (self.folder / name).open("rb")
            stream.seek(offset)
            return stream, offset
        headers = {"Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        answer = _follow(f"{self.title}/{quote(name)}", headers)
        begins = 0
        if answer.status == 206:
            match = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
            begins = int(match[1]) if match else -1
        return _Answer(answer), begins

    def read(self, name: str, limit: int = INDEX_LIMIT) -> bytes | None:
        """A file of at most `limit` bytes; None where there is none."""
        last: Exception | None = None
        for attempt in range(TRIES):
            try:
                with closing(self.open(name)[0]) as stream:
                    content = io.BytesIO()
                    while block := stream.read(_BLOCK):
                        content.write(block)
                        if content.tell() > limit:
                            raise WmlceError(
                                f"{self.title}/{name} does not end after {limit >> 10} KiB",
                                remedy="that is no file of a channel: see what the server sends there",
                            )
                    return content.getvalue()
            except (FileNotFoundError, NotADirectoryError):
                return None
            except HTTPError as error:
                if error.code in (404, 410):
                    return None
                last = error
                if error.code < 500 and error.code != 429:
                    break
            except (URLError, HTTPException, OSError) as error:
                last = error
            time.sleep(pause_s(attempt))
        remedy = "check the address, the server and the network, and run the command again"
        if isinstance(last, HTTPError) and last.code in (401, 403) and self.folder is None:
            host = urlsplit(self.title).hostname
            remedy = f"write the login into ~/.netrc (chmod 600): machine {host} login USER password PASSWORD"
        raise WmlceError(f"{self.title}/{name} cannot be read: {str(last)[:200]}", remedy=remedy) from last


def _follow(address: str, headers: dict[str, str]) -> HTTPResponse:
    """The answer for an address, where redirects lead; each host gets the login that is written for it."""
    for _ in range(_REDIRECTS + 1):
        parts = urlsplit(address)
        request = Request(address, headers=headers)
        if login := _login(parts.hostname or ""):
            request.add_unredirected_header("Authorization", login)
        try:
            answer: HTTPResponse = _opener().open(request, timeout=_ANSWER_LIMIT_S)
            return answer
        except HTTPError as error:
            place = error.headers.get("Location")
            if error.code not in (301, 302, 303, 307, 308) or not place:
                raise
            error.close()
            try:
                target = urlsplit(urljoin(address, place))
                (target.hostname or "").encode("idna")
            except ValueError:
                target = urlsplit("")
            safe = target.scheme == "https" or (target.scheme == parts.scheme == "http")
            if not safe or "@" in target.netloc or not target.hostname:
                wrong = _title(target.geturl()) or "nowhere"
                raise WmlceError(
                    f"{_title(address)} leads on to {wrong}, which is not safe",
                    remedy="ask who runs the server, or name the address that it leads to",
                ) from error
            address = target.geturl()
    raise WmlceError(
        f"{_title(address)} leads on to another address more than {_REDIRECTS} times",
        remedy="ask who runs the server",
    )


def _title(address: str) -> str:
    """An address as it may be shown: what is behind the `?` is often a token."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
