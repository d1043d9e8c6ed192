"""Which of the GPUs that this process sees is its own."""

from __future__ import annotations

import os

from ddl import _core


def number(visible: int) -> int:
    """The number of this rank's GPU among those that it sees.

    ddlrun tells it in DDL_LOCAL_GPU. Otherwise the ranks of a host take theirs in turn.

    Args:
        visible: How many GPUs the process sees, more than 0.
    """
    setting = os.environ.get("DDL_LOCAL_GPU", "")
    if setting.isdecimal() and int(setting) < visible:
        return int(setting)
    return _core.local_rank() % visible
