"""What ddlrun's standard input is, on which depends how it comes to rank 0."""

import os
import stat
import sys


def is_terminal() -> bool:
    """Whether standard input is a terminal, whose lines go to rank 0 through the launcher. Anything else goes
    by run/stdin_feed.py.
    """
    try:
        return os.isatty(0)
    except OSError:
        return False


def is_piped() -> bool:
    """Whether standard input is a pipe, a file or a socket, even an empty one."""
    if sys.stdin is None:  # closed; the number may be another file's by now
        return False
    try:
        status = os.fstat(0)
        null = os.stat(os.devnull)
        return not os.isatty(0) and not (stat.S_ISCHR(status.st_mode) and status.st_rdev == null.st_rdev)
    except OSError:
        return False
