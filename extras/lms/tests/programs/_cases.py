"""Runs the cases of a program: all, or those that it is given."""

import os
import sys
import traceback
from collections.abc import Callable


def run(*cases: Callable[[], None]) -> None:
    wanted = sys.argv[1:] or [case.__name__ for case in cases]
    failed = 0
    for case in cases:
        if case.__name__ not in wanted:
            continue
        try:
            case()
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"failed {case.__name__}", flush=True)
        else:
            print(f"passed {case.__name__}", flush=True)
    if failed:
        # Not by the end of the interpreter: threads of a framework whose call has failed may still want it,
        # and Python 3.11 unwinds those by force, which ends the process by SIGABRT.
        sys.stderr.flush()
        os._exit(failed)
    raise SystemExit(0)


def refused(kind: type[BaseException], words: str, call: Callable[..., object], *arguments: object) -> None:
    """The call raises an error of that kind, whose text has these words."""
    try:
        call(*arguments)
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}: {words}")
