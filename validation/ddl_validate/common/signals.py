"""What a scheduler's signal does to the programs of this package."""

from __future__ import annotations

import signal
import sys


def end_on_sigterm() -> None:
    """Let SIGTERM, by which schedulers end jobs, be an exception, so that what was started is ended too.

    The exit code is 143, as shells report it. To be called in the main thread.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
