"""Every element type, reduction and odd size against numpy in float64; all ranks must hold the same bits.

Prints "cases N" on success; a failed case is an AssertionError that names it.
"""

import itertools
import math

import ddl
import ml_dtypes
import numpy as np

TYPES = [np.float32, np.float16, np.float64, ml_dtypes.bfloat16, np.int32, np.int64]
OPS = ["sum", "avg", "min", "max", "product"]
#: Empty, one, primes, not divisible by any number of ranks, several chunks with a tail.
SIZES = [0, 1, 2, 7, 31, 1009, 65537]
BIG = 400009


def data(rank: int, size: int, dtype: type) -> np.ndarray:
    """A rank's input, which every rank can make."""
    random = np.random.default_rng([rank, size])
    if np.issubdtype(dtype, np.integer):
        return random.integers(-9, 10, size).astype(dtype)
    return random.uniform(-2, 2, size).astype(dtype)


def reference(inputs: list[np.ndarray], op: str, integer: bool) -> tuple[np.ndarray, np.ndarray]:
    """Result in float64, and the magnitude that rounding errors are relative to."""
    stack = np.stack([x.astype(np.float64) for x in inputs])
    if op in ("min", "max"):
        return getattr(stack, op)(axis=0), np.abs(stack).max(axis=0)
    if op == "product":
        return stack.prod(axis=0), np.abs(stack).prod(axis=0)
    total, magnitude = stack.sum(axis=0), np.abs(stack).sum(axis=0)
    if op == "sum":
        return total, magnitude
    mean = total / len(inputs)
    return (np.trunc(mean) if integer else mean), magnitude / len(inputs)


def check(result: np.ndarray, inputs: list[np.ndarray], op: str, what: str) -> None:
    """Asserts that a result is the reduction of the inputs, and the same bits as on rank 0."""
    assert isinstance(result, np.ndarray) and result.dtype == inputs[0].dtype, what
    assert result.shape == inputs[0].shape, what
    integer = np.issubdtype(result.dtype, np.integer)
    expected, magnitude = reference(inputs, op, integer)
    # One rounding a rank (and tier) at most.
    tolerance = np.zeros(result.shape)
    if not integer:
        limits = ml_dtypes.finfo(result.dtype)
        tolerance = magnitude * float(limits.eps) / 2 * (len(inputs) + 2) + float(limits.smallest_subnormal)
    error = np.abs(result.astype(np.float64) - expected)
    worst = int(np.argmax(error - tolerance)) if result.size else 0
    assert result.size == 0 or (error <= tolerance).all(), (
        f"{what}: element {worst} is {result.flat[worst]}, expected {expected.flat[worst]}"
    )
    bits = np.frombuffer(result.tobytes(), np.uint8).astype(np.int32)
    assert (ddl.bcast(bits) == bits).all(), f"{what}: rank {ddl.rank()} holds other bits than rank 0"


def main() -> None:
    """Runs all cases."""
    rank, size, cases = ddl.rank(), ddl.size(), 0

    for dtype, op, n in itertools.product(TYPES, OPS, SIZES):
        inputs = [data(r, n, dtype) for r in range(size)]
        kept = inputs[rank].copy()
        check(ddl.allreduce(inputs[rank], op=op), inputs, op, f"{np.dtype(dtype).name} {op} {n}")
        assert (inputs[rank] == kept).all(), "the input was changed"
        cases += 1

    for dtype in TYPES:
        inputs = [data(r, BIG, dtype) for r in range(size)]
        check(ddl.allreduce(inputs[rank]), inputs, "sum", f"{np.dtype(dtype).name} sum {BIG}")
        check(ddl.allreduce_plain(inputs[rank]), inputs, "sum", f"{np.dtype(dtype).name} MPI {BIG}")
        cases += 2

    # Grouped: mixed types, empty arrays, shapes.
    shapes = [(3, 5), (0,), (1,), (257, 129), (), (7, 11, 13)]
    for op in OPS:
        groups = [
            [
                data(r, math.prod(shape), TYPES[i % 6]).reshape(shape)
                for i, shape in enumerate(shapes + shapes)
            ]
            for r in range(size)
        ]
        for i, result in enumerate(ddl.allreduce_n(groups[rank], op=op, name="group")):
            check(result, [group[i] for group in groups], op, f"group {op}, array {i}")
            cases += 1

    for dtype, n, root in itertools.product(TYPES, [0, 1, 1009, BIG], range(size)):
        expected = data(root, n, dtype)
        result = ddl.bcast(data(rank, n, dtype), root=root)
        assert result.dtype == expected.dtype and result.tobytes() == expected.tobytes(), (
            f"bcast {dtype} {n} {root}"
        )
        cases += 1

    ddl.barrier()
    print(f"cases {cases}", flush=True)


main()
