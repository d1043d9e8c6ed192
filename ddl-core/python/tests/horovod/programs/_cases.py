"""Runs the cases of a test program one after the other, so that one start of the ranks serves many."""

import sys
from collections.abc import Callable, Iterable


def run(cases: Iterable[Callable[[], None]]) -> None:
    """Says of every case that it passed."""
    for case in cases:
        case()
        # one write, so that the other rank's line does not get in between
        sys.stdout.write(f"passed {case.__name__}\n")
        sys.stdout.flush()


def ddl_calls() -> int:
    """Collective calls that DDL has made in this process; before any rank ends, which ends DDL everywhere."""
    import ddl  # initialises nothing: DDL_AUTO_INIT=0

    return int(ddl.stats()["calls"]) if ddl.is_initialized() else 0
