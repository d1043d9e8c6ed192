"""Checks the collectives whose result differs from rank to rank; prints the number of cases."""

import ddl
import ml_dtypes
import numpy as np

rank, size = ddl.rank(), ddl.size()
TYPES = [np.float32, np.float16, np.float64, ml_dtypes.bfloat16, np.int32, np.int64]
cases = 0


def data(of: int, shape, dtype, seed: int):
    """What rank `of` passes; known to all."""
    values = np.random.default_rng([of, seed]).integers(-8, 8, shape)
    return values.astype(dtype)


def check(got, expected, dtype, what) -> None:
    global cases
    cases += 1
    # Small integers: exact in every type.
    assert got.dtype == dtype, what
    assert np.array_equal(np.asarray(got, np.float64), np.asarray(expected, np.float64)), what


seed = 0
for dtype in TYPES:
    for elements in (0, 1, 5, 1009):
        seed += 1
        shape = (size, elements)
        inputs = [data(r, shape, dtype, seed) for r in range(size)]
        exact = np.array([np.asarray(i, np.float64) for i in inputs])
        mine = inputs[rank]
        before = mine.copy()
        for root in range(size):
            result = ddl.reduce(mine, root=root)
            if rank == root:
                check(result, exact.sum(0), dtype, ("reduce", dtype, elements, root))
            else:
                assert result is None
        check(
            ddl.reduce_scatter(mine),
            exact.sum(0)[rank : rank + 1],
            dtype,
            ("reduce_scatter", dtype, elements),
        )
        check(
            ddl.reduce_scatter(mine, op="max"),
            exact.max(0)[rank : rank + 1],
            dtype,
            ("reduce_scatter max", dtype, elements),
        )
        check(ddl.all_gather(mine), exact, dtype, ("all_gather", dtype, elements))
        check(ddl.all_to_all(mine), exact[:, rank], dtype, ("all_to_all", dtype, elements))
        assert np.array_equal(mine, before), "the input was written to"

# Several chunks, of which the last is odd.
for elements in (700_001, 150_000):
    inputs = [data(r, (size, elements), np.int32, elements) for r in range(size)]
    total = sum(i.astype(np.int64) for i in inputs)
    check(ddl.reduce_scatter(inputs[rank])[0], total[rank], np.int32, "large reduce_scatter")
    check(ddl.all_gather(inputs[rank][0]), np.array([i[0] for i in inputs]), np.int32, "large all_gather")
    check(ddl.all_to_all(inputs[rank]), np.array([i[rank] for i in inputs]), np.int32, "large all_to_all")
    result = ddl.reduce(inputs[rank], root=size - 1)
    if rank == size - 1:
        check(result, total, np.int32, "large reduce")
    else:
        cases += 1

print("cases", cases)
