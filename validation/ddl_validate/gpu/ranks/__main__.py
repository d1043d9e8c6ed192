"""`python -m ddl_validate.gpu.ranks PROGRAM FOLDER SETTINGS`: one program on this rank.

FOLDER receives `rank-N.json`: what the program found, or `{"failed": text}`. SETTINGS is a JSON object. Exit
code: 0, or 1 after a failure.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from ..rank_report import write_report
from . import copies, order, overlap, staged, values
from .session import Session

PROGRAMS: dict[str, Callable[[Session, dict[str, Any]], dict[str, Any]]] = {
    "copies": copies.run,
    "ipc": copies.run_ipc,
    "order": order.run,
    "overlap": overlap.run,
    "staged": staged.run,
    "values": values.run,
}


def main(arguments: list[str]) -> int:
    program, folder, settings = arguments

    def measure() -> dict[str, Any]:
        parameters = json.loads(settings)
        session = Session.begin(parameters)
        report = PROGRAMS[program](session, parameters)
        session.ddl.finalize()
        return report

    failed = write_report(folder, measure)
    if failed:
        print(failed, file=sys.stderr, flush=True)
        # the other ranks may be within a call, and would wait for this one's finalize
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
