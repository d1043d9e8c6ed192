"""What is accepted as an array, what is refused, and that results are new arrays."""

from __future__ import annotations

from typing import Any

ARRAYS = """
import ddl, numpy as np, ml_dtypes
rank, size = ddl.rank(), ddl.size()
total = size * (size + 1) // 2

# Any memory order.
square = np.arange(12.0).reshape(3, 4) * (rank + 1)
want = np.arange(12.0).reshape(3, 4) * total
for x, expected in [(square, want), (np.asfortranarray(square), want), (square.T, want.T),
                    (square[::-1, ::2], want[::-1, ::2]), (square[1:1], want[1:1])]:
    result = ddl.allreduce(x)
    assert (result == expected).all() and result.shape == expected.shape and result.flags.c_contiguous

# Read-only inputs, scalars, lists, zero dimensions.
frozen = square.copy(); frozen.flags.writeable = False
assert (ddl.allreduce(frozen) == want).all() and ddl.allreduce(frozen).flags.writeable
assert ddl.allreduce(rank + 1) == total and ddl.allreduce(rank + 1).dtype == np.int64
assert ddl.allreduce(float(rank), op="max") == size - 1
assert (ddl.allreduce([rank, 1.5]) == [total - size, 1.5 * size]).all()
zero = ddl.allreduce(np.float32(rank + 1))
assert zero.shape == () and zero.dtype == np.float32 and zero == total

# In place, contiguous or not.
x = square.copy(); assert ddl.allreduce_(x) is None and (x == want).all()
x = square.copy(); ddl.allreduce_(x[:, 1:3], op="sum", name="middle")
assert (x[:, 1:3] == want[:, 1:3]).all() and (x[:, 0] == square[:, 0]).all()
x = np.full(5, rank, np.int32); ddl.bcast_(x, root=size - 1); assert (x == size - 1).all()
x = np.full((4, 4), rank, np.float16); ddl.bcast_(x[::2, ::3], root=0)
assert (x[::2, ::3] == 0).all() and (x[1] == rank).all()

b = ddl.allreduce(np.full(4, 1.5, ml_dtypes.bfloat16))
assert b.dtype == ml_dtypes.bfloat16 and (b.astype("f") == 1.5 * size).all()
assert ddl.allreduce_n([]) == []
print("ok")
"""

REFUSED = """
import ddl, numpy as np
def refused(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"not refused: {words}")

valid = ["float32", "float16", "float64", "bfloat16", "int32", "int64"]
for bad in [np.ones(3, bool), np.ones(3, np.uint8), np.ones(3, complex), np.array(["a"]), np.array([None]),
            np.ones(3, np.int16), np.ones(3, "M8[s]"), np.ones(2, np.longdouble)]:
    refused(TypeError, lambda: ddl.allreduce(bad), bad.dtype.name, *valid)
    refused(TypeError, lambda: ddl.bcast(bad), *valid)
    refused(TypeError, lambda: ddl.allreduce_n([np.ones(2), bad]), "array 1", *valid)
refused(TypeError, lambda: ddl.allreduce(np.ones(3, ">f4")), "byte order")
refused(ValueError, lambda: ddl.allreduce(np.ones(3), op="mean"), "'mean'", "sum", "product", "avg")
refused(ValueError, lambda: ddl.allreduce(np.ones(3), op=["sum"]), "sum")
frozen = np.ones(3); frozen.flags.writeable = False
refused(ValueError, lambda: ddl.allreduce_(frozen), "read-only")
refused(ValueError, lambda: ddl.bcast_(frozen), "read-only")
refused(TypeError, lambda: ddl.allreduce_([1.0]), "list")
refused(ddl.DDLError, lambda: ddl.bcast(np.ones(3), root=ddl.size()), "[ERROR DDL-1-1]", "root")
refused(ddl.DDLError, lambda: ddl.bcast(np.ones(3), root=-1), "[ERROR DDL-1-1]", "root")
refused(AttributeError, lambda: ddl.no_such_thing, "no_such_thing")

# A refused call is not a collective one: the ranks are still in step.
assert (ddl.allreduce(np.ones(3)) == ddl.size()).all()
print("ok")
"""


def test_arrays_are_accepted(mpirun: Any) -> None:
    """Alone and on three ranks."""
    alone = mpirun.alone(ARRAYS)
    assert alone.status == 0 and alone.stdout == "ok\n", alone.output
    run = mpirun(3, ARRAYS)
    assert run.status == 0 and run.lines("ok") == [""] * 3, run.output


def test_arrays_are_refused(mpirun: Any) -> None:
    """Wrong arguments are exceptions that name them and what is right, on the calling rank only."""
    alone = mpirun.alone(REFUSED)
    assert alone.status == 0, alone.output
    run = mpirun(2, REFUSED)
    assert run.status == 0 and run.lines("ok") == [""] * 2, run.output


def test_errors_can_be_pickled(mpirun: Any) -> None:
    """As process pools and test runners do."""
    run = mpirun.alone(
        "import ddl, pickle; e = pickle.loads(pickle.dumps(ddl.DDLError('text', 7))); print(e, e.code)"
    )
    assert run.stdout == "text 7\n", run.output


def test_other_python_threads_go_on(mpirun: Any) -> None:
    """A rank that waits in DDL does not hold the interpreter lock."""
    program = """
import ddl, numpy as np, threading, time
if ddl.rank() == 0:
    done = threading.Event()
    counted = []
    def count():
        while not done.is_set():
            counted.append(1)
            time.sleep(0.01)
    thread = threading.Thread(target=count); thread.start()
    ddl.barrier()
    done.set(); thread.join()
    print("counted", len(counted))
else:
    time.sleep(1)
    ddl.barrier()
"""
    run = mpirun(2, program)
    assert run.status == 0, run.output
    assert int(run.lines("counted ")[0]) > 10
