"""The one exception that the command line turns into a one-line message."""

import difflib
from collections.abc import Iterable


class BenchmarkError(Exception):
    """Something the user can mend; the text says what, where and the remedy, in one line."""


def unknown(kind: str, value: str, valid: Iterable[str]) -> BenchmarkError:
    """The error for a name outside a list: the nearest valid name first, then the whole list."""
    names = sorted(valid)
    near = difflib.get_close_matches(value, names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]}?" if near else ""
    return BenchmarkError(f"unknown {kind} '{value}'.{hint} Valid: {', '.join(names)}")
