"""What ddlrun itself says: to the user on standard error, to the log of the start, or to both."""

import sys

from .errors import Code
from .runfolder import RunFolder


def say(text: str) -> None:
    """To standard error; where nobody reads it any more, to nobody."""
    try:
        sys.stdout.flush()
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass


class Console:
    """The voice of one start. verbose: steps are told to the user too, not only logged."""

    def __init__(self, folder: RunFolder, verbose: bool) -> None:
        self._folder, self._verbose = folder, verbose

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

    def warn(self, code: Code, text: str) -> None:
        self.say(f"[WARN DDL-2-{int(code)}] {text}")
