"""Collectives on numpy arrays."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from ddl import _core
from ddl._errors import DDLError

#: numpy's name of an element type -> DDL_Type. bfloat16 is ml_dtypes' type, recognised by its name.
TYPES = {"float32": 0, "float16": 1, "float64": 2, "bfloat16": 3, "int32": 4, "int64": 5}

#: Name of a reduction -> DDL_Op.
OPS = {"sum": 0, "min": 1, "max": 2, "product": 3, "avg": 4}


def type_code(dtype: np.dtype[Any], operation: str) -> int:
    """DDL_Type of a dtype.

    Raises:
        TypeError: DDL cannot communicate it.
    """
    code = TYPES.get(dtype.name) if dtype.isnative else None
    if code is None:
        type_name = dtype.name if dtype.isnative else f"{dtype.name} in foreign byte order ({dtype.str})"
        raise TypeError(
            f"{operation}: DDL cannot communicate elements of type {type_name}; "
            f"convert them to one of {', '.join(TYPES)}"
        )
    return code


def op_code(op: str, operation: str) -> int:
    """DDL_Op of a name.

    Raises:
        ValueError: There is no such reduction.
    """
    try:
        return OPS[op]
    except (KeyError, TypeError):
        raise ValueError(f"{operation}: op is {op!r}, but the reductions are {', '.join(OPS)}") from None


def _address(array: np.ndarray[Any, Any]) -> int:
    # Unlike the buffer protocol this works for ml_dtypes' types as well.
    address: int = array.__array_interface__["data"][0]
    return address


def _copy(x: Any) -> np.ndarray[Any, Any]:
    """A new C-contiguous array, whatever x is: non-contiguous, read-only, a scalar, a list."""
    return np.array(x, copy=True, order="C", subok=False)


def _in_place(x: Any, operation: str) -> np.ndarray[Any, Any]:
    """Checks that results can be written to x itself."""
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{operation}: works in place on a numpy array, not on {type(x).__name__}")
    if not x.flags.writeable:
        raise ValueError(
            f"{operation}: the array is read-only; pass a copy, or use the function that returns a new array"
        )
    return x


def allreduce(x: Any, op: str, name: str | None) -> np.ndarray[Any, Any]:
    """See ddl.allreduce."""
    result = _copy(x)
    _core.allreduce_n(
        [_address(result)],
        [result.size],
        type_code(result.dtype, "allreduce"),
        op_code(op, "allreduce"),
        name,
    )
    return result


def allreduce_in_place(x: Any, op: str, name: str | None) -> None:
    """See ddl.allreduce_."""
    array = _in_place(x, "allreduce_")
    work = np.ascontiguousarray(array)
    _core.allreduce_n(
        [_address(work)], [work.size], type_code(work.dtype, "allreduce_"), op_code(op, "allreduce_"), name
    )
    if not array.flags.c_contiguous:
        array[...] = work


def _group_by_type(results: Sequence[np.ndarray[Any, Any]], operation: str) -> dict[int, list[int]]:
    """Indices of the arrays of each type, types in the order of their first arrays: the same on all ranks."""
    groups: dict[int, list[int]] = {}
    for index, result in enumerate(results):
        groups.setdefault(type_code(result.dtype, f"{operation}, array {index}"), []).append(index)
    return groups


def allreduce_n(xs: Sequence[Any], op: str, name: str | None) -> list[np.ndarray[Any, Any]]:
    """See ddl.allreduce_n."""
    results = [_copy(x) for x in xs]
    code = op_code(op, "allreduce_n")
    for dtype, indices in _group_by_type(results, "allreduce_n").items():
        members = [results[index] for index in indices]
        _core.allreduce_n([_address(a) for a in members], [a.size for a in members], dtype, code, name)
    return results


def bcast(x: Any, root: int, name: str | None) -> np.ndarray[Any, Any]:
    """See ddl.bcast."""
    result = _copy(x)
    _core.broadcast_n([_address(result)], [result.size], type_code(result.dtype, "bcast"), root, name)
    return result


def bcast_in_place(x: Any, root: int, name: str | None) -> None:
    """See ddl.bcast_."""
    array = _in_place(x, "bcast_")
    work = np.ascontiguousarray(array)
    _core.broadcast_n([_address(work)], [work.size], type_code(work.dtype, "bcast_"), root, name)
    if not array.flags.c_contiguous:
        array[...] = work


def allreduce_plain(x: Any, op: str) -> np.ndarray[Any, Any]:
    """See ddl.allreduce_plain."""
    result = _copy(x)
    _core.allreduce_plain(
        _address(result),
        result.size,
        type_code(result.dtype, "allreduce_plain"),
        op_code(op, "allreduce_plain"),
    )
    return result


#: Results of started calls, by handle: DDL writes to them until the call is complete, whoever holds them.
_under_way: dict[int, np.ndarray[Any, Any]] = {}

#: Handles that nobody will wait for.
_left: deque[int] = deque()


def _close_left() -> None:
    """Lets go of the calls that are complete and that nobody waits for."""
    for _ in range(len(_left)):
        handle = _left.popleft()
        try:
            if not _core.test(handle):
                _left.append(handle)
                continue
            _core.wait(handle)
        except DDLError:
            pass
        _under_way.pop(handle, None)


def keep_under_way() -> None:
    """Leaves the arrays of calls that are under way to the process, which is about to end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_under_way))


class PendingArray:
    """See ddl.allreduce_start."""

    def __init__(self, result: np.ndarray[Any, Any], handle: int) -> None:
        self._result = result
        self._handle: int | None = handle

    def done(self) -> bool:
        """Whether wait() would return at once. Raises DDLError when the call has failed."""
        return self._handle is None or _core.test(self._handle)

    def wait(self) -> np.ndarray[Any, Any]:
        """The reduced array, when it is complete; may be asked for again.

        Raises:
            DDLError: As for ddl.allreduce.
        """
        if self._handle is not None:
            handle, self._handle = self._handle, None
            try:
                _core.wait(handle)
            finally:
                _under_way.pop(handle, None)
        return self._result

    def __del__(self) -> None:
        # Other ranks may come to the call much later: this one goes on meanwhile.
        if self._handle is not None and _left is not None:
            _left.append(self._handle)


def allreduce_start(x: Any, op: str, name: str | None, priority: int) -> PendingArray:
    """See ddl.allreduce_start."""
    _close_left()
    result = _copy(x)
    handle = _core.allreduce_start(
        [_address(result)],
        [result.size],
        type_code(result.dtype, "allreduce_start"),
        op_code(op, "allreduce_start"),
        name,
        priority,
    )
    _under_way[handle] = result
    return PendingArray(result, handle)


def reduce(x: Any, op: str, root: int, name: str | None) -> np.ndarray[Any, Any] | None:
    """See ddl.reduce."""
    result = _copy(x)
    _core.reduce(
        _address(result), result.size, type_code(result.dtype, "reduce"), op_code(op, "reduce"), root, name
    )
    return result if _core.rank() == root else None


def _blocks(x: Any, operation: str) -> np.ndarray[Any, Any]:
    """x as a contiguous array whose first axis can be divided among the ranks."""
    array = np.ascontiguousarray(x)
    ranks = _core.size()
    if array.ndim == 0 or array.shape[0] % ranks:
        raise ValueError(
            f"{operation}: an array of shape {np.shape(x)} cannot be divided among {ranks} ranks; the "
            "length of its first axis must be a multiple of their number"
        )
    return array


def reduce_scatter(x: Any, op: str, name: str | None) -> np.ndarray[Any, Any]:
    """See ddl.reduce_scatter."""
    array = _blocks(x, "reduce_scatter")
    result = np.empty((array.shape[0] // _core.size(), *array.shape[1:]), array.dtype)
    code = type_code(array.dtype, "reduce_scatter")
    _core.reduce_scatter(
        _address(array), _address(result), result.size, code, op_code(op, "reduce_scatter"), name
    )
    return result


def all_gather(x: Any, name: str | None) -> np.ndarray[Any, Any]:
    """See ddl.all_gather."""
    array = np.asarray(x, order="C")
    result = np.empty((_core.size(), *array.shape), array.dtype)
    _core.all_gather(
        _address(array), _address(result), array.size, type_code(array.dtype, "all_gather"), name
    )
    return result


def all_to_all(x: Any, name: str | None) -> np.ndarray[Any, Any]:
    """See ddl.all_to_all."""
    array = _blocks(x, "all_to_all")
    result = np.empty_like(array)
    count = array.size // _core.size()
    _core.all_to_all(_address(array), _address(result), count, type_code(array.dtype, "all_to_all"), name)
    return result
