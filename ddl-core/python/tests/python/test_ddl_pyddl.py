"""The low-level calls of the historical module, and that ddl.pyddl works as it did."""

from __future__ import annotations

from typing import Any

PROGRAM = """
import numpy as np
import pyddl
pyddl.init()
n = 1000
x = np.full(n, pyddl.rank() + 1, np.float64)
device = pyddl.malloc(4096, x.nbytes)
assert device % 4096 == 0
pyddl.memcpy_host_to_device(device, x)
pyddl.allreduce(device, n, pyddl.DDL_TYPE_DOUBLE, pyddl.DDL_OP_SUM)
pyddl.memsync()
y = np.zeros(n)
pyddl.memcpy_device_to_host(y, device)
pyddl.free(device)
assert (y == 3).all(), y
z = np.ones(7, np.int32)
pyddl.allreduce(z, 5, pyddl.DDL_TYPE_INT32, pyddl.DDL_OP_SUM)
assert z.tolist() == [2] * 5 + [1] * 2
for bad in (lambda: pyddl.memcpy_device_to_host(y[::2], device), lambda: pyddl.allreduce(z, 8, 4),
            lambda: pyddl.memcpy_host_to_device(device, y, -1)):
    try:
        bad()
    except ValueError:
        pass
    else:
        raise AssertionError
try:
    pyddl.malloc(3, 8)
except pyddl.DDLError as error:
    assert error.code == 1
pyddl.finalize()
print("done")
"""


def test_pyddl(mpirun: Any) -> None:
    """Two ranks."""
    run = mpirun(2, PROGRAM)
    assert run.status == 0 and len(run.lines("done")) == 2, run.output
