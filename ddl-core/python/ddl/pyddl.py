"""The low-level calls of the historical pyddl module, on addresses instead of arrays.

Memory of `malloc` is the host's; the two copies are named after a device because programs written for pyddl
use these names. Types and ops are the numbers of ddl.h, the constants below.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ddl import _arrays, _core, _launch_state
from ddl._errors import DDLError as DDLError  # what all of these raise

__all__ = [
    "DDL_OP_AVG",
    "DDL_OP_MAX",
    "DDL_OP_MIN",
    "DDL_OP_PRODUCT",
    "DDL_OP_SUM",
    "DDL_TYPE_BFLOAT16",
    "DDL_TYPE_DOUBLE",
    "DDL_TYPE_FLOAT",
    "DDL_TYPE_HALF",
    "DDL_TYPE_INT32",
    "DDL_TYPE_INT64",
    "DDLError",
    "allreduce",
    "finalize",
    "free",
    "init",
    "local_rank",
    "local_size",
    "malloc",
    "memcpy_device_to_host",
    "memcpy_host_to_device",
    "memsync",
    "rank",
    "size",
]

DDL_TYPE_FLOAT, DDL_TYPE_HALF, DDL_TYPE_DOUBLE, DDL_TYPE_BFLOAT16, DDL_TYPE_INT32, DDL_TYPE_INT64 = range(6)
DDL_OP_SUM, DDL_OP_MIN, DDL_OP_MAX, DDL_OP_PRODUCT, DDL_OP_AVG = range(5)

rank = _core.rank
local_rank = _core.local_rank
size = _core.size
local_size = _core.local_size
finalize = _core.finalize


def init(options: str | None = None) -> None:
    """See ddl.init."""
    _core.init(options)
    _launch_state.register()


def malloc(align: int, bytes: int) -> int:
    """Address of `bytes` new bytes, aligned to `align`, a power of two (0: 64)."""
    return _core.malloc(align, bytes)


def free(address: int) -> None:
    """Frees memory of malloc."""
    _core.free(address)


def _checked(array: Any, bytes: int | None, writeable: bool, operation: str) -> int:
    flags = array.flags
    if not flags.c_contiguous or (writeable and not flags.writeable):
        raise ValueError(
            f"{operation}: the array must be C-contiguous{' and writeable' if writeable else ''}"
        )
    count: int = array.nbytes if bytes is None else bytes
    if not 0 <= count <= array.nbytes:
        raise ValueError(f"{operation}: {count} bytes do not fit the array of {array.nbytes}")
    return count


def memcpy_host_to_device(address: int, array: Any, bytes: int | None = None) -> None:
    """Copies a contiguous numpy array (or its first `bytes` bytes) to memory of malloc."""
    count = _checked(array, bytes, False, "memcpy_host_to_device")
    ctypes.memmove(address, array.__array_interface__["data"][0], count)


def memcpy_device_to_host(array: Any, address: int, bytes: int | None = None) -> None:
    """Copies from memory of malloc to a contiguous, writeable numpy array."""
    count = _checked(array, bytes, True, "memcpy_device_to_host")
    ctypes.memmove(array.__array_interface__["data"][0], address, count)


def memsync() -> None:
    """Waits for copies under way: none, as copies within the host are complete on return."""


def allreduce(buf: Any, n: int, type: int = DDL_TYPE_FLOAT, op: int = DDL_OP_SUM) -> None:
    """Reduces n elements in place. buf is an address, or a contiguous, writeable numpy array of that type."""
    if isinstance(buf, int):
        address = buf
    else:
        if _arrays.type_code(buf.dtype, "pyddl.allreduce") != type:
            raise TypeError(f"pyddl.allreduce: the array is of type {buf.dtype.name}, but type says {type}")
        _checked(buf, n * buf.itemsize, True, "pyddl.allreduce")
        address = buf.__array_interface__["data"][0]
    _core.allreduce_n([address], [n], type, op, None)
