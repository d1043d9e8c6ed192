"""`python -m ddl_validate.gpu.ranks PROGRAM FOLDER SETTINGS`: one program on this rank.

FOLDER receives `rank-N.json`: what the program found, or `{"failed": text}`. SETTINGS is a JSON object. Exit
code: 0, or 1 after a failure.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import GpuError
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
    program, folder, settings = arguments[0], Path(arguments[1]), json.loads(arguments[2])
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMIX_RANK") or "0")
    report: dict[str, Any]
    session = None
    try:
        session = Session.begin(settings)
        report = PROGRAMS[program](session, settings)
        session.end()
    except GpuError as error:
        report = {"failed": str(error)}
    except Exception:
        report = {"failed": traceback.format_exc(limit=-3)}
    (folder / f"rank-{rank}.json").write_text(json.dumps(report))
    if "failed" in report:
        print(report["failed"], file=sys.stderr, flush=True)
        # the other ranks may be within a call, and would wait for this one's finalize
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
