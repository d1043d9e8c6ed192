"""Horovod's operations on tensors of PyTorch, compared with numpy; and who made them, by DDL's counters."""

import sys
from collections.abc import Callable

import horovod.torch as hvd
import numpy as np
import torch
from _cases import ddl_calls, run

PAIR = hvd.ProcessSet([0, 1])
hvd.init(process_sets=[PAIR] if "process_sets" in sys.argv else None)
RANK, SIZE = hvd.rank(), hvd.size()
#: With HOROVOD_CPU_OPERATIONS=mpi nothing may go through DDL.
BY_DDL = "by_mpi" not in sys.argv
TYPES = (torch.float32, torch.float64, torch.float16, torch.int32, torch.int64)


def numbers(rank: int, kind: torch.dtype, count: int = 1000) -> torch.Tensor:
    """Small integers, so that sums and products are exact in every type."""
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randint(1, 4, (count,), generator=generator).to(kind)


def everyone(kind: torch.dtype, count: int = 1000) -> np.ndarray:
    return np.stack([numbers(rank, kind, count).numpy() for rank in range(SIZE)])


def calls_of(call: Callable[[], object]) -> int:
    """How many calls of DDL it takes."""
    before = ddl_calls()
    call()
    return ddl_calls() - before


def by_ddl(call: Callable[[], object]) -> None:
    made = calls_of(call)
    assert made > 0 if BY_DDL else made == 0, made


def not_by_ddl(call: Callable[[], object]) -> None:
    made = calls_of(call)
    assert made == 0, made


def types_and_operations() -> None:
    expected = {
        hvd.Sum: lambda values: values.sum(0),
        hvd.Min: lambda values: values.min(0),
        hvd.Max: lambda values: values.max(0),
        hvd.Product: lambda values: values.prod(0),
    }
    for kind in TYPES:
        for op, reference in expected.items():

            def reduce(kind: torch.dtype = kind, op: int = op, reference: Callable = reference) -> None:
                mine = numbers(RANK, kind)
                found = hvd.allreduce(mine, op=op, name=f"{kind}-{op}")
                wanted = reference(everyone(kind)).astype(found.numpy().dtype)
                np.testing.assert_array_equal(found.numpy(), wanted)
                assert torch.equal(mine, numbers(RANK, kind)), "the input was changed"

            by_ddl(reduce)


def averages() -> None:
    for kind in TYPES[:3]:

        def average(kind: torch.dtype = kind) -> None:
            found = hvd.allreduce(numbers(RANK, kind), name=f"average-{kind}")
            np.testing.assert_allclose(found.numpy(), everyone(kind).astype("f8").mean(0), rtol=1e-3)

        by_ddl(average)


def scaled() -> None:
    def scale() -> None:
        mine = numbers(RANK, torch.float32)
        found = hvd.allreduce(mine, op=hvd.Sum, name="scaled", prescale_factor=0.5, postscale_factor=8.0)
        np.testing.assert_allclose(found.numpy(), everyone(torch.float32).sum(0) * 4, rtol=1e-6)
        found = hvd.allreduce(mine, op=hvd.Average, name="scaled-average", postscale_factor=8.0)
        np.testing.assert_allclose(found.numpy(), everyone(torch.float32).mean(0) * 8, rtol=1e-6)

    by_ddl(scale)


def in_place() -> None:
    def reduce() -> None:
        mine = numbers(RANK, torch.float32)
        hvd.allreduce_(mine, op=hvd.Sum, name="in place")
        np.testing.assert_array_equal(mine.numpy(), everyone(torch.float32).sum(0))

    by_ddl(reduce)


def fused() -> None:
    """Tensors of a group are one call of DDL, whatever their sizes; an empty one is among them."""
    sizes = (1, 1000, 0, 70_000, 3)

    def reduce() -> None:
        mine = [numbers(RANK, torch.float32, size) for size in sizes]
        for found, size in zip(hvd.grouped_allreduce(mine, op=hvd.Sum, name="group"), sizes, strict=True):
            np.testing.assert_array_equal(found.numpy(), everyone(torch.float32, size).sum(0))

    made = calls_of(reduce)
    assert made == (1 if BY_DDL else 0), made


def at_once() -> None:
    """Several operations under way, started in another order on each rank."""

    def reduce() -> None:
        order = np.random.default_rng(RANK).permutation(20)
        tensors = {i: numbers(RANK, torch.float32, 100 + 7 * i) for i in range(20)}
        handles = {i: hvd.allreduce_async(tensors[i], op=hvd.Sum, name=f"at once {i}") for i in order}
        for i, handle in handles.items():
            found = hvd.synchronize(handle)
            np.testing.assert_array_equal(found.numpy(), everyone(torch.float32, 100 + 7 * i).sum(0))

    by_ddl(reduce)


def broadcasts() -> None:
    for kind in TYPES:

        def send(kind: torch.dtype = kind) -> None:
            root = SIZE - 1
            found = hvd.broadcast(numbers(RANK, kind), root_rank=root, name=f"broadcast-{kind}")
            assert torch.equal(found, numbers(root, kind))

        by_ddl(send)


def left_to_mpi() -> None:
    """Other types, and operations that DDL has no class for in Horovod."""

    def others() -> None:
        found = hvd.broadcast(numbers(RANK, torch.uint8), root_rank=0, name="bytes")
        assert torch.equal(found, numbers(0, torch.uint8))
        mine = torch.full((RANK + 1, 2), float(RANK))
        rows = hvd.allgather(mine, name="rows").numpy()
        np.testing.assert_array_equal(
            rows, np.concatenate([np.full((r + 1, 2), r, "f") for r in range(SIZE)])
        )
        alone = torch.eye(SIZE)[RANK]
        if SIZE == 2:  # Adasum is for powers of two; it adds what is orthogonal
            assert hvd.allreduce(alone, op=hvd.Adasum, name="adasum").tolist() == [1.0, 1.0]
        assert hvd.allgather_object({"rank": RANK}, name="objects") == [{"rank": r} for r in range(SIZE)]

    not_by_ddl(others)


def joined() -> None:
    """A rank that has no more data takes part with zeros."""
    if RANK == 0:
        found = hvd.allreduce(torch.ones(5), op=hvd.Sum, name="one more")
        assert found.tolist() == [1.0] * 5, found
    assert hvd.join() == 0


def process_sets() -> None:
    """A set of some of the ranks is reduced by MPI, and the set of all by DDL at the same time."""

    def reduce() -> None:
        everything = hvd.allreduce_async(numbers(RANK, torch.float32), op=hvd.Sum, name="all")
        if PAIR.included():
            mine = numbers(RANK, torch.float32)
            found = hvd.allreduce(mine, op=hvd.Sum, name="pair", process_set=PAIR)
            np.testing.assert_array_equal(found.numpy(), everyone(torch.float32)[:2].sum(0))
        found = hvd.synchronize(everything)
        np.testing.assert_array_equal(found.numpy(), everyone(torch.float32).sum(0))

    assert SIZE > 2, "the set would be that of all"
    made = calls_of(reduce)
    assert made == (1 if BY_DDL else 0), made


def main() -> None:
    cases = [types_and_operations, averages, scaled, in_place, fused, at_once, broadcasts, left_to_mpi]
    run([*cases, *([process_sets] if "process_sets" in sys.argv else []), joined])


if __name__ == "__main__":
    main()
