"""The operators by WML CE's name for their library, ddl_MDR.so, alone and beside `import ddl`."""

from __future__ import annotations

import os
import subprocess

import pytest
from rank_launcher import LIMIT, PREFIX
from rank_processes import ALLOW_ROOT, own_environment

LIBRARY = PREFIX / "ddl-tensorflow/lib/ddl_MDR.so"
PROGRAM = """
import sys
import tensorflow as tf

library, order, status = sys.argv[1:]
if order == "ddl first":
    import ddl
operators = tf.load_op_library(library)
rank, size, local_rank, local_size, gpu = (int(number) for number in operators.init(4, mode="-mode p"))
assert (size, local_rank, local_size, gpu) == (2, rank, 2, 4)
total = operators.all_reduce(tf.fill([3], rank + 1.0))
averages = operators.all_reduce_n([tf.fill([3], 2.0 * rank), tf.fill([2], 8.0 * rank)], op="avg")
root = operators.bcast(tf.fill([2], rank + 7.0))
assert total.numpy().tolist() == [3, 3, 3], total
assert [average.numpy().tolist() for average in averages] == [[1, 1, 1], [4, 4]], averages
assert root.numpy().tolist() == [7, 7], root
if order != "alone":
    import ddl.tensorflow
    assert ddl.tensorflow.operators is operators
    assert tf.compat.v1.load_op_library(library) is operators
    assert ddl.allreduce(tf.fill([2], 1.0)).numpy().tolist() == [2, 2]
sys.stdout.write(f"rank {rank} done\\n")
sys.exit(int(status) if rank == 1 else 0)
"""


def job(order: str, status: int = 0, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    words = [
        "-np",
        "2",
        "-timeout",
        str(LIMIT - 30),
        "python",
        "-c",
        program,
        str(LIBRARY),
        order,
        str(status),
    ]
    return subprocess.run(
        [str(PREFIX / "bin/ddlrun"), *words],
        env={**own_environment(), **ALLOW_ROOT, "TF_CPP_MIN_LOG_LEVEL": "3", "DDL_OPTIONS": "-timeout 60"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("order", ["alone", "ddl first", "ddl after it"])
def test_two_ranks(order: str) -> None:
    """The values are right, and the job ends as it should: alone, nobody but the library finalises DDL."""
    assert os.path.samefile(
        LIBRARY, next(PREFIX.glob("lib/python3*/site-packages/ddl/tensorflow/libddl_tf.so"))
    )
    ended = job(order)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert sorted(ended.stdout.splitlines()) == ["rank 0 done", "rank 1 done"]


@pytest.mark.slow
def test_a_rank_that_ends_with_an_error() -> None:
    """Its end is the job's at once; the other rank, which finalises, does not wait for its limit."""
    ended = job("alone", status=3)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "rank 1 ended with exit code 3" in ended.stderr


ANY_ORDER = """
import sys
import tensorflow as tf

operators = tf.load_op_library(sys.argv[1])
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    place = operators.init(4, mode="-mode p")
    sums = [operators.all_reduce(tf.fill([3], value)) for value in (1.0, 2.0)]
    rank = session.run(place)[0]
    session.run(sums[rank])
"""


@pytest.mark.slow
def test_operators_in_another_order() -> None:
    """In a graph each rank runs them in an order of its own: no sum is of two different ones."""
    ended = job("alone", program=ANY_ORDER)
    assert ended.returncode != 0 and "ranks made different calls" in ended.stderr, ended.stderr
    assert "AllReduce_1" in ended.stderr
