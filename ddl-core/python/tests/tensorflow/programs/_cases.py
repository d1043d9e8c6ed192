"""Runs the cases of a test program and reports each, so that one start of the ranks serves many."""

import json
import sys
import traceback
from pathlib import Path

import ddl


def run(cases):
    """Runs every case on this rank and writes rank<r>.json into the folder given as the first argument.

    A case that fails on one rank leaves the others in a collective, so the run ends with it.
    """
    report = {}
    path = Path(sys.argv[1]) / f"rank{ddl.rank()}.json"
    for case in cases:
        try:
            case()
            report[case.__name__] = "passed"
        except BaseException:
            report[case.__name__] = traceback.format_exc()
            raise
        finally:
            path.write_text(json.dumps(report))


def refused(kind, words, call):
    """Asserts that a call is refused with a text that has these words."""
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"accepted, but {words} was expected")
