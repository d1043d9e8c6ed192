"""The one exception that the command line turns into a one-line message."""


class NmtError(Exception):
    """Something the user can mend; the text says what, where and the remedy."""
