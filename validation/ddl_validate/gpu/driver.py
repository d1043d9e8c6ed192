"""NVIDIA's driver (libcuda.so.1) by ctypes: devices, memory, copies, streams. No CUDA toolkit is needed.

Only functions that DDL itself calls are used (ddl-core/libddl/src/cuda/driver_functions.hpp), so that
whatever can stand in for the driver in DDL's tests can do so here.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import GpuError
from .library import open_library

LIBRARY = "libcuda.so.1"
#: The first driver of CUDA 12, which DDL needs.
LEAST_VERSION = 12000
LEAST_RELEASE = "525.60.13"
_NOT_READY = 600
_NON_BLOCKING = 1
_NO_TIMING = 2
_PORTABLE = 1
_LAZY_PEER_ACCESS = 1
_HANDLE_BYTES = 64

_address = ctypes.c_uint64
_pointer = ctypes.c_void_p
_size = ctypes.c_size_t


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle: names memory of a device to another process of the host."""

    _fields_ = (("reserved", ctypes.c_char * _HANDLE_BYTES),)


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDriverGetVersion": (_pointer,),
    "cuGetErrorName": (ctypes.c_int, _pointer),
    "cuGetErrorString": (ctypes.c_int, _pointer),
    "cuDeviceGetCount": (_pointer,),
    "cuDeviceGet": (_pointer, ctypes.c_int),
    "cuDeviceGetName": (ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (_pointer, ctypes.c_int),
    "cuCtxSetCurrent": (_pointer,),
    "cuMemAlloc_v2": (_pointer, _size),
    "cuMemFree_v2": (_address,),
    "cuMemHostAlloc": (_pointer, _size, ctypes.c_uint),
    "cuMemFreeHost": (_pointer,),
    "cuMemcpyHtoDAsync_v2": (_address, _pointer, _size, _pointer),
    "cuMemcpyDtoHAsync_v2": (_pointer, _address, _size, _pointer),
    "cuMemcpyDtoDAsync_v2": (_address, _address, _size, _pointer),
    "cuStreamCreateWithPriority": (_pointer, ctypes.c_uint, ctypes.c_int),
    "cuStreamDestroy_v2": (_pointer,),
    "cuStreamQuery": (_pointer,),
    "cuEventCreate": (_pointer, ctypes.c_uint),
    "cuEventDestroy_v2": (_pointer,),
    "cuEventRecord": (_pointer, _pointer),
    "cuEventQuery": (_pointer,),
    "cuIpcGetMemHandle": (_pointer, _address),
    "cuIpcOpenMemHandle_v2": (_pointer, IpcHandle, ctypes.c_uint),
    "cuIpcCloseMemHandle": (_address,),
}


class Driver:
    """The driver of this process. Raises GpuError where there is none, or none that works."""

    def __init__(self, name: str = LIBRARY) -> None:
        self._library = open_library(
            name,
            _FUNCTIONS,
            "no NVIDIA driver: {error}; install one, or start the container with --nv",
            f"the NVIDIA driver lacks {{symbol}}: DDL needs one of CUDA 12, release {LEAST_RELEASE} or "
            "later; update it",
        )
        self.call("cuInit", 0)

    def status(self, symbol: str, *arguments: Any) -> int:
        """What a function returns; 0 is success."""
        return int(getattr(self._library, symbol)(*arguments))

    def call(self, symbol: str, *arguments: Any) -> None:
        """Call a function; GpuError with the driver's words where it fails."""
        status = self.status(symbol, *arguments)
        if status:
            raise GpuError(f"{symbol}: {self.text_of(status)}")

    def text_of(self, status: int) -> str:
        parts = []
        for symbol in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            if self.status(symbol, status, ctypes.byref(text)) == 0 and text.value:
                parts.append(text.value.decode(errors="replace"))
        return ", ".join(parts) or f"error {status}"

    def _number(self, symbol: str) -> int:
        value = ctypes.c_int()
        self.call(symbol, ctypes.byref(value))
        return value.value

    @property
    def version(self) -> int:
        """The CUDA that it supports, as in 12040."""
        return self._number("cuDriverGetVersion")

    @property
    def device_count(self) -> int:
        return self._number("cuDeviceGetCount")

    def device_name(self, ordinal: int) -> str:
        """Its model: "NVIDIA H100 80GB HBM3"."""
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, len(text), self._handle(ordinal))
        return text.value.decode(errors="replace")

    def _handle(self, ordinal: int) -> int:
        handle = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), ordinal)
        return handle.value

    def open(self, ordinal: int) -> Device:
        """The device's primary context, the one that frameworks and DDL use; current in this thread."""
        return Device(self, self._handle(ordinal), ordinal)


def version_text(version: int) -> str:
    """``12.4`` for 12040."""
    return f"{version // 1000}.{version % 1000 // 10}"


class Device:
    """A device with its primary context; what is made with it is freed by the caller, or with the process."""

    def __init__(self, driver: Driver, handle: int, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        context = _pointer()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        driver.call("cuCtxSetCurrent", context)

    def allocate(self, size: int) -> Buffer:
        address = _address()
        self.driver.call("cuMemAlloc_v2", ctypes.byref(address), max(size, 1))
        return Buffer(self, address.value, size)

    def pinned(self, size: int) -> npt.NDArray[np.uint8]:
        """Page-locked memory of the host, which copies reach at the full rate; kept until unpin(), or to the
        process's end."""
        address = _pointer()
        self.driver.call("cuMemHostAlloc", ctypes.byref(address), max(size, 1), _PORTABLE)
        assert address.value is not None
        block = (ctypes.c_uint8 * size).from_address(address.value)
        return np.ctypeslib.as_array(block)

    def unpin(self, block: npt.NDArray[np.uint8]) -> None:
        """Free what pinned() has given."""
        self.driver.call("cuMemFreeHost", block.ctypes.data)

    def stream(self) -> Stream:
        """A stream that does not wait for the default one."""
        handle = _pointer()
        self.driver.call("cuStreamCreateWithPriority", ctypes.byref(handle), _NON_BLOCKING, 0)
        return Stream(self, handle)

    def event(self) -> Event:
        handle = _pointer()
        self.driver.call("cuEventCreate", ctypes.byref(handle), _NO_TIMING)
        return Event(self, handle)


@dataclass(frozen=True)
class Buffer:
    """Memory of a device."""

    device: Device
    address: int
    size: int

    def free(self) -> None:
        self.device.driver.call("cuMemFree_v2", self.address)

    def ipc_handle(self) -> bytes:
        """Names it to another process of this host."""
        handle = IpcHandle()
        self.device.driver.call("cuIpcGetMemHandle", ctypes.byref(handle), self.address)
        return ctypes.string_at(ctypes.byref(handle), _HANDLE_BYTES)


def open_ipc(device: Device, named: bytes, size: int) -> Buffer:
    """Memory of another process, by its name; to be given back by close_ipc()."""
    handle = IpcHandle()
    ctypes.memmove(ctypes.byref(handle), named, _HANDLE_BYTES)
    address = _address()
    device.driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), handle, _LAZY_PEER_ACCESS)
    return Buffer(device, address.value, size)


def close_ipc(buffer: Buffer) -> None:
    buffer.device.driver.call("cuIpcCloseMemHandle", buffer.address)


@dataclass(frozen=True)
class Event:
    """A place in a stream."""

    device: Device
    handle: ctypes.c_void_p

    def record(self, stream: Stream) -> Event:
        self.device.driver.call("cuEventRecord", self.handle, stream.handle)
        return self

    def done(self) -> bool:
        return _done(self.device.driver, "cuEventQuery", self.handle)

    def free(self) -> None:
        self.device.driver.call("cuEventDestroy_v2", self.handle)


@dataclass(frozen=True)
class Stream:
    """Copies in their order. Host memory must be pinned, and stay until the copy is complete."""

    device: Device
    handle: ctypes.c_void_p

    def to_device(self, to: int, source: npt.NDArray[Any]) -> None:
        self.device.driver.call("cuMemcpyHtoDAsync_v2", to, source.ctypes.data, source.nbytes, self.handle)

    def to_host(self, to: npt.NDArray[Any], source: int) -> None:
        self.device.driver.call("cuMemcpyDtoHAsync_v2", to.ctypes.data, source, to.nbytes, self.handle)

    def within(self, to: int, source: int, size: int) -> None:
        self.device.driver.call("cuMemcpyDtoDAsync_v2", to, source, size, self.handle)

    def done(self) -> bool:
        return _done(self.device.driver, "cuStreamQuery", self.handle)

    def synchronize(self, limit: float = 60.0) -> None:
        """Wait until all is done; GpuError after ``limit`` seconds."""
        wait_until(self.done, limit, "a stream")

    def free(self) -> None:
        self.device.driver.call("cuStreamDestroy_v2", self.handle)


def _done(driver: Driver, symbol: str, handle: ctypes.c_void_p) -> bool:
    status = driver.status(symbol, handle)
    if status not in (0, _NOT_READY):
        raise GpuError(f"{symbol}: {driver.text_of(status)}")
    return status == 0


def wait_until(done: Callable[[], bool], limit: float, action: str) -> None:
    """Poll without sleeping, as times are taken around this; others may have the core in between."""
    end = time.monotonic() + limit
    while not done():
        if time.monotonic() > end:
            raise GpuError(f"{action} was not done after {limit:g} s")
        os.sched_yield()
