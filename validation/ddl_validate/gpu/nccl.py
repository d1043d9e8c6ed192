"""NCCL (libnccl.so.2) by ctypes: one communicator of all ranks, and its all-reduce of float32 sums."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from .errors import GpuError
from .library import open_library

LIBRARY = "libnccl.so.2"
ID_BYTES = 128
_FLOAT, _SUM = 7, 0
_IN_PROGRESS = 7
_UNSET = -(2**31)
_pointer = ctypes.c_void_p


class UniqueId(ctypes.Structure):
    """ncclUniqueId."""

    _fields_ = (("internal", ctypes.c_char * ID_BYTES),)


class Config(ctypes.Structure):
    """ncclConfig_t of NCCL 2.18, which later releases take."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
        ("cga_cluster_size", ctypes.c_int),
        ("min_ctas", ctypes.c_int),
        ("max_ctas", ctypes.c_int),
        ("net_name", ctypes.c_char_p),
        ("split_share", ctypes.c_int),
    )


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (_pointer,),
    "ncclGetUniqueId": (_pointer,),
    "ncclCommInitRankConfig": (_pointer, ctypes.c_int, UniqueId, ctypes.c_int, _pointer),
    "ncclAllReduce": (_pointer, _pointer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, _pointer, _pointer),
    "ncclCommGetAsyncError": (_pointer, _pointer),
    "ncclCommDestroy": (_pointer,),
}


class Nccl:
    """The library that DDL would take: DDL_NCCL_LIBRARY, or the process's own. GpuError without one."""

    def __init__(self) -> None:
        name = os.environ.get("DDL_NCCL_LIBRARY") or LIBRARY
        library = open_library(
            name,
            _FUNCTIONS,
            "no NCCL: {error}; install nccl, or name one in DDL_NCCL_LIBRARY",
            f"{name} lacks {{symbol}}: NCCL 2.18 or later is needed",
        )
        library.ncclGetErrorString.restype = ctypes.c_char_p
        self._library = library
        self._communicator = _pointer()

    @property
    def version(self) -> str:
        number = ctypes.c_int()
        self._check(self._library.ncclGetVersion(ctypes.byref(number)), "ncclGetVersion")
        return version_text(number.value)

    def _check(self, status: int, call: str) -> None:
        if status not in (0, _IN_PROGRESS):
            text = self._library.ncclGetErrorString(status).decode(errors="replace")
            raise GpuError(f"{call}: {text}; NCCL_DEBUG=INFO in the environment makes NCCL say more")

    def unique_id(self) -> bytes:
        """What rank 0 makes, and all ranks need."""
        identifier = UniqueId()
        self._check(self._library.ncclGetUniqueId(ctypes.byref(identifier)), "ncclGetUniqueId")
        return ctypes.string_at(ctypes.byref(identifier), ID_BYTES)

    def connect(self, unique_id: bytes, rank: int, size: int) -> None:
        """Make the communicator; collective, on the current device of each rank."""
        named = UniqueId()
        ctypes.memmove(ctypes.byref(named), unique_id, ID_BYTES)
        config = Config(
            size=ctypes.sizeof(Config),
            magic=0xCAFEBEEF,
            version=21800,
            blocking=1,
            cga_cluster_size=_UNSET,
            min_ctas=_UNSET,
            max_ctas=_UNSET,
            net_name=None,
            split_share=_UNSET,
        )
        status = self._library.ncclCommInitRankConfig(
            ctypes.byref(self._communicator), size, named, rank, ctypes.byref(config)
        )
        self._check(status, "ncclCommInitRankConfig")

    def allreduce(self, address: int, count: int, stream: ctypes.c_void_p) -> None:
        """Queue an all-reduce of float32 sums in place on a stream."""
        status = self._library.ncclAllReduce(
            address, address, count, _FLOAT, _SUM, self._communicator, stream
        )
        self._check(status, "ncclAllReduce")

    def check(self) -> None:
        """GpuError where something of what was queued has failed."""
        status = ctypes.c_int()
        self._check(self._library.ncclCommGetAsyncError(self._communicator, ctypes.byref(status)), "NCCL")
        self._check(status.value, "ncclAllReduce")

    def close(self) -> None:
        self._check(self._library.ncclCommDestroy(self._communicator), "ncclCommDestroy")


def version_text(number: int) -> str:
    """``2.18.3`` for 21803."""
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"
