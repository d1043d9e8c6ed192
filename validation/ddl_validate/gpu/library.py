"""Libraries opened by ctypes, with the functions that are called here."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from .errors import GpuError


def open_library(
    name: str,
    functions: Mapping[str, tuple[Any, ...]],
    missing: str,
    lacking: str,
    mode: int = ctypes.DEFAULT_MODE,
) -> ctypes.CDLL:
    """The library, with the parameters of its functions, which return a status. GpuError where it or one of
    them is not there; missing, lacking: these errors, with places for the {error} and the {symbol}."""
    try:
        library = ctypes.CDLL(name, mode=mode)
    except OSError as error:
        raise GpuError(missing.format(error=error)) from error
    for symbol, parameters in functions.items():
        try:
            call = getattr(library, symbol)
        except AttributeError:
            raise GpuError(lacking.format(symbol=symbol)) from None
        call.argtypes, call.restype = parameters, ctypes.c_int
    return library
