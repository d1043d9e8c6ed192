"""Large Model Support for PyTorch: saved tensors are moved to the host when the device holds too many.

import lms.torch
lms.torch.enable(limit="12GB")
"""

from __future__ import annotations

from typing import Any

from lms._errors import LmsError
from lms.torch._advice import Advice, advise
from lms.torch._compat import install_compat
from lms.torch._saved import Stats
from lms.torch._support import Support

__all__ = [
    "Advice",
    "Stats",
    "Support",
    "advise",
    "disable",
    "enable",
    "enabled",
    "install_compat",
    "reset_stats",
    "stats",
]

_latest: Support | None = None


def enable(
    limit: int | float | str,
    *,
    min_size: int | str = "1MB",
    pinned: bool = True,
    prefetch: int = 2,
    host_limit: int | str | None = None,
    device: str | None = None,
) -> Support:
    """Keeps the tensors that autograd saves in this thread within a limit, from now until disable().

    Args:
        limit: Of saved tensors on each device: bytes, a text such as "12GB", or a float that is a part of the
            device's memory, such as 0.6. Parameters and other leaves are not counted, and never moved.
        min_size: Smaller storages are not moved.
        pinned: Moves into pinned memory, which copies run to and from beside the computation.
        prefetch: How many tensors are fetched before the backward pass needs them.
        host_limit: Of the host's memory for moved tensors. The default is half of the machine's
            memory, divided by the ranks on it.
        device: Kind of device. The default is PyTorch's accelerator; without one it is "cpu", for dry runs.

    Returns:
        A context manager: `with lms.torch.enable("12GB"): ...` disables at its end.

    Raises:
        LmsError: It is enabled already.
    """
    global _latest
    if enabled():
        raise LmsError(
            "lms.torch is enabled already: call lms.torch.disable(), or set .limit of what enable() gave"
        )
    _latest = Support(limit, min_size, pinned, prefetch, host_limit, device)
    _latest.enable()
    return _latest


def disable() -> None:
    """Tensors that are saved from now on stay on their device; those on the host come back when needed."""
    if _latest is not None:
        _latest.disable()


def enabled() -> bool:
    """Whether saved tensors are moved."""
    return _latest is not None and _latest.enabled


def stats(device: Any = None) -> Stats:
    """What is saved and what was moved since enable() or reset_stats(), on one device or on all."""
    return _support().stats(device)


def reset_stats() -> None:
    """Starts the peaks and sums of stats() anew."""
    _support().reset_stats()


def _support() -> Support:
    if _latest is None:
        raise LmsError("lms.torch was never enabled: call lms.torch.enable(limit)")
    return _latest
