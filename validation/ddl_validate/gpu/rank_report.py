"""What a rank found, in a file for whoever started it (start.Starter.module)."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import GpuError


def current_rank() -> int:
    names = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "RANK")
    return int(next(filter(None, map(os.environ.get, names)), "0"))


def write_report(folder: str, measure: Callable[[], dict[str, Any]]) -> str | None:
    """Write `rank-N.json` into a folder: what was measured, or `{"failed": text}`; this text."""
    try:
        report = measure()
    except GpuError as error:
        report = {"failed": str(error)}
    except Exception:
        report = {"failed": traceback.format_exc(limit=-3)}
    Path(folder, f"rank-{current_rank()}.json").write_text(json.dumps(report))
    return report.get("failed")
