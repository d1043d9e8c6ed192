"""What ddlrun itself says: to the user on standard error, to the log of the start, or to both."""

import sys
import threading

from .errors import Code
from .runfolder import RunFolder


class _Progress:
    """One line of a terminal, which the next line of anything replaces; nothing without a terminal."""

    def __init__(self) -> None:
        self._shown, self._lock = False, threading.Lock()
        self.silent = False

    def show(self, text: str) -> None:
        with self._lock:
            try:
                if sys.stderr.isatty() and not self.silent:
                    sys.stderr.write(f"\r\x1b[K{text}")
                    sys.stderr.flush()
                    self._shown = True
            except (OSError, ValueError):
                pass

    def clear(self) -> None:
        if not self._shown:
            return
        with self._lock:
            try:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
            except (OSError, ValueError):
                pass
            self._shown = False


_progress = _Progress()
show_progress = _progress.show
clear_progress = _progress.clear


def say(text: str) -> None:
    """To standard error; where nobody reads it any more, to nobody."""
    clear_progress()
    try:
        sys.stdout.flush()
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass


class Console:
    """The voice of one start. verbose: steps are told to the user too, not only logged. quiet: what goes as
    it should
    is only logged.
    """

    def __init__(self, folder: RunFolder, verbose: bool, quiet: bool = False) -> None:
        self._folder, self._verbose, self._quiet = folder, verbose, quiet
        _progress.silent = quiet

    def log(self, text: str) -> None:
        self._folder.log(text)

    def tell(self, text: str) -> None:
        """A step that went as it should."""
        self._folder.log(text)
        if self._verbose:
            say(f"[DDL] {text}")

    def say(self, text: str) -> None:
        self._folder.log(text)
        say(text)

    def inform(self, text: str) -> None:
        """What the user wants to know unless he asked for quiet."""
        self._folder.log(text)
        if not self._quiet:
            say(text)

    def warn(self, code: Code, text: str) -> None:
        self.say(f"[WARN DDL-2-{int(code)}] {text}")
