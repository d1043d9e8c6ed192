"""What ddlrun tells a script that it starts again after a failure."""

from __future__ import annotations

import os


def restart_count() -> int:
    """How many times the job was started again before this start.

    Returns:
        0 at the first start and without ddlrun, 1 after the first failure, and so on.
    """
    text = os.environ.get("DDL_RESTART_COUNT", "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def restart_reason() -> str:
    """Why the job was started again: what failed, and where. Empty at the first start."""
    return os.environ.get("DDL_RESTART_REASON", "")


def checkpoint_dir(default: str | None = None) -> str | None:
    """The folder for checkpoints.

    Args:
        default: Returned where ddlrun was not told a folder.

    Returns:
        The folder of `ddlrun -checkpoint-dir`, which exists.
    """
    return os.environ.get("DDL_CHECKPOINT_DIR") or default
