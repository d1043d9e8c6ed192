"""libddl.so by ctypes, as a C program uses it: what ddl.h declares, and no more of it than is needed here."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import GpuError
from .library import open_library

#: DDL_Type, DDL_Op and DDL_Collective by their names in documents.
TYPES = {"float32": 0, "float16": 1, "float64": 2, "bfloat16": 3, "int32": 4, "int64": 5}
OPS = {"sum": 0, "min": 1, "max": 2, "product": 3, "avg": 4}
COLLECTIVES = {
    "all-reduce": 0,
    "broadcast": 1,
    "reduce": 2,
    "reduce-scatter": 3,
    "all-gather": 4,
    "all-to-all": 5,
}
HOST, CUDA = 0, 1
MISMATCH = 7
_pointer, _size, _int = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class Call(ctypes.Structure):
    """DDL_Call."""

    _fields_ = (
        ("size", _size),
        ("collective", _int),
        ("memory", _int),
        ("stream", _pointer),
        ("bufs", ctypes.POINTER(_pointer)),
        ("counts", ctypes.POINTER(_size)),
        ("n", _size),
        ("into", _pointer),
        ("out", _pointer),
        ("count", _size),
        ("type", _int),
        ("op", _int),
        ("root", _int),
        ("priority", _int),
        ("name", ctypes.c_char_p),
        ("group", ctypes.c_ulonglong),
    )


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ddl_init": (ctypes.c_char_p,),
    "ddl_finalize": (),
    "ddl_rank": (_pointer,),
    "ddl_size": (_pointer,),
    "ddl_local_rank": (_pointer,),
    "ddl_barrier": (),
    "ddl_allreduce": (_pointer, _size, _int, _int),
    "ddl_all_gather": (_pointer, _pointer, _size, _int, ctypes.c_char_p),
    "ddl_call": (_pointer,),
    "ddl_call_start": (_pointer, _pointer),
    "ddl_stream_wait": (ctypes.c_ulonglong, _pointer),
    "ddl_wait": (ctypes.c_ulonglong,),
    "ddl_describe": (ctypes.c_char_p, _size, _pointer),
}


class Refused(GpuError):
    """A call of DDL that failed; code: of ddl.h."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Work:
    """A collective call on device memory.

    buffers: (address, elements) of those that are reduced or broadcast as one. into, out, count: of calls
    with two buffers.
    """

    collective: str
    type: str
    op: str = "sum"
    buffers: Sequence[tuple[int, int]] = ()
    into: int = 0
    out: int = 0
    count: int = 0
    root: int = 0
    name: str = ""
    memory: int = CUDA


class Ddl:
    """DDL in this process. Raises GpuError where the library is missing or older than its calls on GPUs."""

    def __init__(self, prefix: Path | None = None) -> None:
        path = (prefix or Path(sys.prefix)) / "lib" / "libddl.so"
        library = open_library(
            str(path),
            _FUNCTIONS,
            "no DDL: {error}; install powerai, and start this with its Python",
            f"{path} lacks {{symbol}}: this DDL knows no GPUs; update it",
            ctypes.RTLD_GLOBAL,
        )
        library.ddl_last_error.restype = ctypes.c_char_p
        library.ddl_version.restype = ctypes.c_char_p
        self._library = library

    def init(self, options: str | None = None) -> None:
        self._check(self._library.ddl_init(options.encode() if options is not None else None))
        self.rank, self.size = self._number("ddl_rank"), self._number("ddl_size")
        self.local_rank = self._number("ddl_local_rank")

    def finalize(self) -> None:
        self._check(self._library.ddl_finalize())

    def _number(self, symbol: str) -> int:
        value = _int()
        self._check(getattr(self._library, symbol)(ctypes.byref(value)))
        return value.value

    def _check(self, code: int) -> None:
        if code:
            raise Refused(code, self._library.ddl_last_error().decode(errors="replace"))

    @property
    def version(self) -> str:
        return str(self._library.ddl_version().decode())

    def describe(self) -> dict[str, Any]:
        """What DDL says of itself: its topology, its way on GPUs, counters."""
        needed = _size()
        self._check(self._library.ddl_describe(None, 0, ctypes.byref(needed)))
        # counters may grow by some digits meanwhile
        room = needed.value + 4096
        text = ctypes.create_string_buffer(room)
        self._check(self._library.ddl_describe(text, room, None))
        description = json.loads(text.value)
        assert isinstance(description, dict)
        return description

    def call(self, work: Work, stream: ctypes.c_void_p | None = None) -> None:
        """Make a call; the results are there on return."""
        call, _kept = self._packed(work, stream)
        self._check(self._library.ddl_call(ctypes.byref(call)))

    def start(self, work: Work, stream: ctypes.c_void_p | None = None, priority: int = 0) -> int:
        """Start a call; returns its handle, for wait() and stream_wait()."""
        call, _kept = self._packed(work, stream)
        call.priority = priority
        handle = ctypes.c_ulonglong()
        self._check(self._library.ddl_call_start(ctypes.byref(call), ctypes.byref(handle)))
        return handle.value

    def stream_wait(self, handle: int, stream: ctypes.c_void_p) -> None:
        self._check(self._library.ddl_stream_wait(handle, stream))

    def wait(self, handle: int) -> None:
        self._check(self._library.ddl_wait(handle))

    def allreduce(self, address: int, count: int, kind: str = "float32", op: str = "sum") -> None:
        """The shortest way in, for times: memory of either kind, in place."""
        self._check(self._library.ddl_allreduce(address, count, TYPES[kind], OPS[op]))

    def barrier(self) -> None:
        self._check(self._library.ddl_barrier())

    def gather_bytes(self, block: bytes, room: int) -> list[bytes]:
        """At most ``room`` bytes of every rank, filled up with zeros; by host memory."""
        elements = -(-room // 4)
        mine = ctypes.create_string_buffer(block[:room], 4 * elements)
        everyone = ctypes.create_string_buffer(4 * elements * self.size)
        self._check(self._library.ddl_all_gather(mine, everyone, elements, TYPES["int32"], None))
        whole = everyone.raw
        return [whole[4 * elements * rank :][:room] for rank in range(self.size)]

    def highest(self, *values: float) -> list[float]:
        """The highest of each value over all ranks; by host memory."""
        return self.reduced(values, "max")

    def total(self, *values: float) -> list[float]:
        """The sum of each value over all ranks; by host memory."""
        return self.reduced(values, "sum")

    def reduced(self, values: Sequence[float], op: str) -> list[float]:
        numbers = (ctypes.c_double * len(values))(*values)
        self.allreduce(ctypes.addressof(numbers), len(values), "float64", op)
        return list(numbers)

    @staticmethod
    def _packed(work: Work, stream: ctypes.c_void_p | None) -> tuple[Call, Any]:
        """The structure, and what it points to."""
        number = len(work.buffers)
        addresses = (_pointer * max(number, 1))(*(address for address, _ in work.buffers))
        counts = (_size * max(number, 1))(*(count for _, count in work.buffers))
        call = Call(
            size=ctypes.sizeof(Call),
            collective=COLLECTIVES[work.collective],
            memory=work.memory,
            stream=stream,
            bufs=ctypes.cast(addresses, ctypes.POINTER(_pointer)),
            counts=ctypes.cast(counts, ctypes.POINTER(_size)),
            n=number,
            into=work.into or None,
            out=work.out or None,
            count=work.count,
            type=TYPES[work.type],
            op=OPS[work.op],
            root=work.root,
            name=work.name.encode() or None,
        )
        return call, (addresses, counts)
