"""The names that WML CE's PyTorch had in torch.cuda."""

from __future__ import annotations

import torch

_limit = 0
_min_size: int | str = "1MB"


def set_enabled_lms(enable: bool) -> None:
    """Switches Large Model Support on or off, with the limit and the size that were set."""
    import lms.torch

    if enable and not lms.torch.enabled():
        lms.torch.enable(_limit, min_size=_min_size)
    elif not enable:
        lms.torch.disable()


def get_enabled_lms() -> bool:
    """Whether it is on."""
    import lms.torch

    return lms.torch.enabled()


def set_limit_lms(limit: int) -> None:
    """Bytes of saved tensors on each device; 0, as at the start, moves all that can be moved."""
    global _limit
    import lms.torch
    from lms._sizes import parse_bytes

    _limit = parse_bytes(limit, "limit")
    if lms.torch.enabled():
        lms.torch._support().limit = _limit


def get_limit_lms() -> int:
    """The limit that was set."""
    return _limit


def set_size_lms(size: int) -> None:
    """Smaller storages are not moved; holds from the next set_enabled_lms(True) on."""
    global _min_size
    from lms._sizes import parse_bytes

    _min_size = parse_bytes(size, "size")


def get_size_lms() -> int | str:
    """The size that was set."""
    return _min_size


def install_compat() -> None:
    """Puts set_enabled_lms, set_limit_lms and set_size_lms, and their get_…, into torch.cuda.

    Unlike WML CE's, the limit is that of saved tensors, not of all memory that PyTorch has taken.
    """
    for function in (
        *(set_enabled_lms, get_enabled_lms, set_limit_lms, get_limit_lms),
        *(set_size_lms, get_size_lms),
    ):
        setattr(torch.cuda, function.__name__, function)
