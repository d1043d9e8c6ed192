"""The operators, each result compared with numpy in float64."""

import os
import re
import sys
import tempfile
import threading
import time

import _cases
import ddl
import ddl.tensorflow as ddl_tf
import ml_dtypes
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
RANK, SIZE = ddl.rank(), ddl.size()
TYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int64]


def values(rank, count, dtype):
    """The values that `rank` contributes; every rank can compute those of all."""
    generator = np.random.default_rng([rank, count])
    if np.issubdtype(dtype, np.integer):
        return generator.integers(-9, 10, count).astype(dtype)
    return generator.uniform(-2, 2, count).astype(dtype)


def expected(count, dtype, op):
    """The reduction of all ranks' values in float64."""
    stacked = np.stack([values(rank, count, dtype).astype(np.float64) for rank in range(SIZE)])
    if op == "avg" and np.issubdtype(dtype, np.integer):
        return np.trunc(stacked.sum(0) / SIZE)
    return {"sum": np.sum, "avg": np.mean, "min": np.min, "max": np.max, "product": np.prod}[op](stacked, 0)


def close(actual, wanted, dtype):
    """Asserts equality to within a few roundings of the type; exactly for integers."""
    if np.issubdtype(dtype, np.integer):
        np.testing.assert_array_equal(actual, wanted)
    else:
        epsilon = float(ml_dtypes.finfo(dtype).eps)
        np.testing.assert_allclose(np.asarray(actual, np.float64), wanted, rtol=4 * epsilon, atol=8 * epsilon)


def every_type_operation_and_size():
    """AllReduce; sizes none, one, prime, more than one page."""
    for dtype in TYPES:
        for op in ("sum", "avg", "min", "max", "product"):
            for count in (0, 1, 13, 4099):
                result = ddl_tf.allreduce(values(RANK, count, dtype), op)
                assert result.dtype == tf.as_dtype(dtype) and result.shape == (count,)
                close(result.numpy(), expected(count, dtype, op), dtype)


def groups_of_mixed_types():
    """AllReduceN keeps order, shapes and types."""
    counts = [7, 0, 1, 1000, 5]
    types = [np.float32, np.float64, np.int32, np.float32, ml_dtypes.bfloat16]
    given = [tf.constant(values(RANK, c, t)) for c, t in zip(counts, types, strict=True)]
    given[3] = tf.reshape(given[3], [10, 4, 25])
    results = ddl_tf.allreduce_n(given, name="mixed")
    assert [r.shape for r in results] == [g.shape for g in given]
    for result, count, dtype in zip(results, counts, types, strict=True):
        close(result.numpy().ravel(), expected(count, dtype, "avg"), dtype)
    for op in ("sum", "avg"):
        pair = ddl_tf.operators.all_reduce_n(
            [values(RANK, 5, np.float32), values(RANK, 9, np.float32)], op=op
        )
        close(pair[1].numpy(), expected(9, np.float32, op), np.float32)


def broadcasts():
    """Bcast from rank 0 by default, and from any other."""
    for dtype in TYPES:
        close(ddl_tf.bcast(values(RANK, 13, dtype)).numpy(), values(0, 13, dtype).astype(np.float64), dtype)
    last = ddl_tf.bcast(tf.fill([2, 3], float(RANK)), root=SIZE - 1)
    np.testing.assert_array_equal(last, np.full((2, 3), SIZE - 1.0))
    try:
        ddl_tf.bcast(tf.zeros([1]), root=SIZE)
        raise AssertionError("a root that is no rank was accepted")
    except ValueError as error:
        assert f"0 to {SIZE - 1}" in str(error), error


def inputs_are_left_alone():
    """In a graph the kernels reduce in their input's memory, but only where nobody else needs it."""
    x = tf.constant(values(RANK, 64, np.float32))
    ddl_tf.allreduce(x)
    np.testing.assert_array_equal(x, values(RANK, 64, np.float32))

    @tf.function
    def twice(x):
        doubled = x * 2.0
        return doubled, ddl_tf.allreduce(doubled), ddl_tf.allreduce_n([doubled, doubled], "sum")

    kept, reduced, group = twice(x)
    np.testing.assert_array_equal(kept, values(RANK, 64, np.float32) * 2)
    for result in (reduced, *group):
        close(result.numpy(), 2 * expected(64, np.float32, "sum"), np.float32)


def init_says_who_we_are():
    """Init; the accelerator is the user's, ddlrun's or that of the local rank."""
    answer = ddl_tf.operators.init(-1, mode="p", pci=False)
    assert [int(x) for x in answer] == [RANK, SIZE, ddl.local_rank(), ddl.local_size(), ddl.local_rank()]
    assert int(ddl_tf.operators.init(tf.constant(5)).local_gpuid) == 5
    for told, number in (("3", 3), *((text, ddl.local_rank()) for text in ("-2", "1x", ""))):
        os.environ["DDL_LOCAL_GPU"] = told
        assert int(ddl_tf.operators.init(-1).local_gpuid) == number, told
    del os.environ["DDL_LOCAL_GPU"]


def attribute_mpi():
    """The baseline gives the same result."""
    for op in ("sum", "avg"):
        result = ddl_tf.allreduce(values(RANK, 100, np.float32), op, mpi=True)
        close(result.numpy(), expected(100, np.float32, op), np.float32)
        group = ddl_tf.allreduce_n([values(RANK, 100, np.float32), values(RANK, 3, np.float32)], op, mpi=True)
        close(group[1].numpy(), expected(3, np.float32, op), np.float32)


def attribute_check():
    """The report counts exactly the elements that differ by more than the tolerance."""
    os.environ["DDL_DEBUG"] = "1"  # reports agreement too
    for count, dtype, tolerance in (
        (50000, np.float16, 1e-7),
        (50000, np.float32, 1e-12),
        (100, np.int32, 0.5),
    ):
        given = values(RANK, count, dtype)
        by_mpi = np.asarray(ddl_tf.allreduce(given, "avg", mpi=True), np.float64)
        with Captured() as captured:
            checked = ddl_tf.allreduce_n([given], "avg", name=f"checked {dtype.__name__}", check=tolerance)[0]
        allowed = np.float32(tolerance) * np.maximum(1, np.abs(by_mpi))
        apart = np.abs(np.asarray(checked, np.float64) - by_mpi) > allowed
        report = rf"\[WARN DDL-1-20\].*checked {dtype.__name__}: .* (\d+) of {count} elements"
        found = re.findall(report, captured.text)
        assert found == ([str(apart.sum())] if apart.any() else []), (captured.text, apart.sum())
        agrees = (
            SIZE == 1 or f"checked {dtype.__name__}: tensor 1 of 1, {count} elements agree" in captured.text
        )
        assert agrees == (not apart.any()), captured.text


class Captured:
    """What C++ writes to standard error within the block."""

    def __enter__(self):
        self._file = tempfile.TemporaryFile()
        self._before = os.dup(2)
        os.dup2(self._file.fileno(), 2)
        return self

    def __exit__(self, *exception):
        os.dup2(self._before, 2)
        os.close(self._before)
        self._file.seek(0)
        self.text = self._file.read().decode()
        sys.stderr.write(self.text)
        self._file.close()


def gradients():
    """Of a sum, the sum of the gradients; of Bcast, their sum at the root and zero elsewhere."""
    x = tf.constant([1.0 + RANK, 2.0])
    weight = 3.0 + RANK
    total = sum(3.0 + rank for rank in range(SIZE))
    for op, scale in (("sum", 1.0), ("avg", 1.0 / SIZE)):

        @tf.function
        def loss(x, op=op):
            first, second = ddl_tf.allreduce_n([x, 2 * x], op)
            return weight * tf.reduce_sum(ddl_tf.allreduce(x, op) + first + second)

        with tf.GradientTape() as tape:
            tape.watch(x)
            value = loss(x)
        np.testing.assert_allclose(tape.gradient(value, x), np.full(2, 4 * total * scale), rtol=1e-6)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = weight * tf.reduce_sum(ddl_tf.bcast(x))
    np.testing.assert_allclose(tape.gradient(value, x), np.full(2, total if RANK == 0 else 0.0))
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = ddl_tf.allreduce_n([x, x], "sum")[RANK % 2]  # ranks use different outputs
    np.testing.assert_allclose(tape.gradient(value, x), np.full(2, float(SIZE)))
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = ddl_tf.allreduce(x, "max")
    try:
        tape.gradient(value, x)
        raise AssertionError("max has been given a gradient")
    except (NotImplementedError, LookupError) as error:
        assert "max" in str(error), error


def independent_operators_keep_their_order():
    """Nothing but the wrappers' chain orders these; without it their names would meet in any order."""
    with tf.Graph().as_default():
        given = [tf.random.uniform([1000]) * 0 + float(i + RANK) for i in range(12)]
        reduced = [ddl_tf.allreduce(x, name=f"tensor {i}") for i, x in enumerate(given)]
        with v1.Session() as session:
            for _ in range(10):
                for i, result in enumerate(session.run(reduced)):
                    np.testing.assert_array_equal(
                        result, np.full(1000, sum(range(SIZE)) + i * SIZE, np.float32)
                    )

    @tf.function
    def inner(x, i):
        return ddl_tf.allreduce(x, name=f"inner {i}")

    @tf.function
    def outer(x):
        return [inner(x + i, i) if i % 2 else ddl_tf.allreduce(x + i, name=f"outer {i}") for i in range(10)]

    for _ in range(10):
        for i, result in enumerate(outer(tf.zeros([1000]))):
            np.testing.assert_array_equal(result, np.full(1000, i * SIZE, np.float32))


def in_loops_and_branches():
    """Within tf.while_loop and tf.cond."""

    @tf.function
    def repeat(x):
        for _ in tf.range(5):
            x = ddl_tf.allreduce(x, "avg") + 1.0
        if tf.reduce_sum(x) > 0:
            x = ddl_tf.allreduce(x)
        return x

    np.testing.assert_allclose(repeat(tf.constant([float(RANK)])), [((SIZE - 1) / 2 + 5) * SIZE], rtol=1e-6)


def the_executor_is_not_blocked():
    """With one inter-op thread the other operators run while the all-reduce waits for a late rank."""
    config = v1.ConfigProto(inter_op_parallelism_threads=1, use_per_session_threads=True)
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [])
        reduced = ddl_tf.allreduce(x)
        other = x
        for _ in range(5):
            other = tf.identity(other)
        other_done = tf.numpy_function(lambda _: time.monotonic(), [other], tf.float64)
        with tf.control_dependencies([reduced]):
            reduced_done = tf.numpy_function(lambda _: time.monotonic(), [reduced], tf.float64)
        with v1.Session(config=config) as session:
            ddl.barrier()
            if RANK == SIZE - 1:
                time.sleep(1.0)
            total, other_time, reduced_time = session.run([reduced, other_done, reduced_done], {x: 1.0})
    assert total == SIZE
    if RANK == 0 and SIZE > 1:
        assert reduced_time - other_time > 0.7, (other_time, reduced_time)


def what_waits_can_be_cancelled():
    """A step that runs into its time limit while its all-reduce still waits behind another one's."""
    late = SIZE - 1
    with tf.Graph().as_default():
        # Not by the wrappers, which would chain the second behind the first.
        first = ddl_tf.operators.all_reduce(1.0, tensor_name="first")
        second = ddl_tf.operators.all_reduce(2.0, tensor_name="second")
        with v1.Session() as session:
            session.run(first)  # a session prepares a step when it first sees it, which takes a while
            session.run(second)
            ddl.barrier()
            if late == RANK:
                time.sleep(3.0)
                assert session.run(first) == SIZE
            else:
                thread = threading.Thread(target=session.run, args=(first,))
                thread.start()
                time.sleep(0.5)
                try:
                    session.run(second, options=v1.RunOptions(timeout_in_ms=400))
                    raise AssertionError("the time limit was ignored")
                except (tf.errors.DeadlineExceededError, tf.errors.CancelledError):
                    pass
                thread.join()
            assert session.run(second) == 2 * SIZE  # nobody is left behind by the cancelled call


def wrong_types_are_refused():
    """Types that DDL does not know, and XLA."""
    try:
        ddl_tf.allreduce(tf.constant([True]))
        raise AssertionError("bool was accepted")
    except TypeError as error:
        assert "bool" in str(error) and "int32" in str(error), error

    @tf.function(jit_compile=True)
    def compiled(x):
        return ddl_tf.allreduce(x)

    try:
        compiled(tf.zeros([1]))
        raise AssertionError("XLA was accepted")
    except NotImplementedError as error:
        assert "jit_compile=False" in str(error), error


_cases.run(
    [
        every_type_operation_and_size,
        groups_of_mixed_types,
        broadcasts,
        inputs_are_left_alone,
        init_says_who_we_are,
        attribute_mpi,
        attribute_check,
        gradients,
        independent_operators_keep_their_order,
        in_loops_and_branches,
        the_executor_is_not_blocked,
        what_waits_can_be_cancelled,
        wrong_types_are_refused,
    ]
)
