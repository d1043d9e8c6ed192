"""A real browser for tests of pages: Chromium without a window, over the pipe of its DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_LIMIT = 60.0
_FLAGS = (
    *("--headless", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-extensions", "--force-color-profile=srgb"),
    # as root, and in containers without user namespaces; the pages are the tests' own
    "--no-sandbox",
)
# The protocol is on descriptors 3 and 4, whichever numbers the pipes have here.
_START = """
import os, sys
for number, pipe in enumerate([os.dup(int(one)) for one in sys.argv[1:3]], 3):
    os.dup2(pipe, number)
    os.set_inheritable(number, True)
os.execv(sys.argv[3], sys.argv[3:])
"""


class BrowserError(Exception):
    """The browser did not do what it was asked, or not within the time limit."""


def program() -> str | None:
    """The browser of this machine; None where there is none."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """One process with one tab. errors: of the console, uncaught ones too. requests: URLs that the page asked
    for, without its own.
    """

    def __init__(self, executable: str, folder: Path) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        self._rest = b""
        self._answers: dict[int, dict[str, Any]] = {}
        self._events: list[str] = []
        self._url = ""
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        start = [sys.executable, "-c", _START, str(to_browser), str(from_browser)]
        with (folder / "browser.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*start, executable, *_FLAGS, f"--user-data-dir={folder / 'profile'}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(to_browser, from_browser),
                env={**os.environ, "HOME": str(folder)},
            )
        os.close(to_browser)
        os.close(from_browser)
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrowserError, OSError):
            self._session = ""
            self.call("Browser.close")
        with contextlib.suppress(OSError):
            os.close(self._write)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._read)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a method of the DevTools protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + _LIMIT
        while self._number not in self._answers:
            self._take(end, method)
        answer = self._answers.pop(self._number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _take(self, end: float, waited_for: str) -> None:
        """Read what the browser says next."""
        ready, _, _ = select.select([self._read], [], [], max(end - time.monotonic(), 0))
        if not ready:
            raise BrowserError(f"no answer to {waited_for} within {_LIMIT:.0f} s")
        data = os.read(self._read, 1 << 20)
        if not data:
            raise BrowserError(f"the browser ended while {waited_for} was waited for; see browser.log")
        *whole, self._rest = (self._rest + data).split(b"\0")
        for one in whole:
            told = json.loads(one)
            if "id" in told:
                self._answers[told["id"]] = told
            else:
                self._event(told["method"], told.get("params", {}))

    def _event(self, method: str, told: dict[str, Any]) -> None:
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.errors.append(str((details.get("exception") or {}).get("description") or details["text"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert", "warning"):
            self.errors.append(
                " ".join(str(one.get("value", one.get("description"))) for one in told["args"])
            )
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.errors.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            url = told["request"]["url"]
            if url != self._url and not url.startswith(("data:", "blob:")):
                self.requests.append(url)

    def show(self, page: Path | str, width: int = 1280, dark: bool = False, height: int = 900) -> None:
        """Open a page, a file or an address, in a window of this size, and wait until it is drawn."""
        self.errors, self.requests = [], []
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._events = []
        self._url = page if isinstance(page, str) else page.resolve().as_uri()
        self.call("Page.navigate", url=self._url)
        end = time.monotonic() + _LIMIT
        while "Page.loadEventFired" not in self._events:
            self._take(end, f"the page {page}")
        self.settle()

    def resize(self, width: int, height: int = 900) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def settle(self) -> None:
        """Wait for fonts and for what is drawn in the next two frames."""
        frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        self.value(f"document.fonts.ready.then(() => {frames}).then(() => true)")

    def value(self, script: str) -> Any:
        """The value of a JavaScript expression; of a promise, what it gives."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            details = told["exceptionDetails"]
            raise BrowserError(str((details.get("exception") or {}).get("description") or details["text"]))
        return told["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """A key, as a person presses it."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)
        if key == "Enter":
            self.call("Input.dispatchKeyEvent", type="char", key=key, text="\r")

    def picture(self, path: Path, whole: bool = False) -> None:
        """A screenshot as PNG; whole: of all of the page."""
        told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(told["data"]))


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Browser]:
    """The machine's browser, which must be there (see `program`)."""
    executable = program()
    if executable is None:
        raise BrowserError(f"none of {', '.join(PROGRAMS)} is on this machine")
    folder.mkdir(parents=True, exist_ok=True)
    with Browser(executable, folder) as browser:
        yield browser
