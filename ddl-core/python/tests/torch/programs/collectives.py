"""Every collective of torch.distributed on the backend ddl, against what the ranks' inputs say."""

from inspect import signature

import torch
import torch.distributed as dist
from _cases import refused, run
from _device import DEVICE, init_process_group

init_process_group()
RANK, SIZE = dist.get_rank(), dist.get_world_size()
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def of_rank(rank: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What that rank contributes: small integers, exact in all types."""
    generator = torch.Generator("cpu").manual_seed(1000 + rank)
    return torch.randint(0, 4, shape, generator=generator, device="cpu").to(dtype).to(DEVICE)


def everyone(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.stack([of_rank(rank, *shape, dtype=dtype).cpu() for rank in range(SIZE)])


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found.cpu(), wanted.to("cpu", found.dtype), rtol=1e-3, atol=0)


def all_reduce() -> None:
    for dtype in (*FLOATS, *INTEGERS):
        for shape in ((), (1,), (3, 5), (70001,)):
            every = everyone(*shape, dtype=dtype).double()
            for op, wanted in (
                (dist.ReduceOp.SUM, every.sum(0)),
                (dist.ReduceOp.MAX, every.amax(0)),
                (dist.ReduceOp.MIN, every.amin(0)),
                (dist.ReduceOp.PRODUCT, every.prod(0)),
                (dist.ReduceOp.AVG, every.mean(0)),
            ):
                mine = of_rank(RANK, *shape, dtype=dtype)
                dist.all_reduce(mine, op)
                same(mine, wanted if dtype.is_floating_point else wanted.floor())
    truth = torch.tensor([RANK == 0, True, False])
    dist.all_reduce(truth)
    assert truth.tolist() == [True, True, False]
    number = torch.complex(of_rank(RANK, 4), of_rank(RANK, 4))
    dist.all_reduce(number)
    same(number, torch.complex(everyone(4).sum(0), everyone(4).sum(0)))
    strided = of_rank(RANK, 6, 4).t()
    dist.all_reduce(strided)
    same(strided, everyone(6, 4).sum(0).t())
    halves = of_rank(RANK, 9)
    dist.all_reduce(halves, dist._make_nccl_premul_sum(0.5))
    same(halves, everyone(9).sum(0) / 2)
    several = [of_rank(RANK, 5), of_rank(RANK, 3), of_rank(RANK, 2)]
    dist.all_reduce_coalesced(several)
    for tensor, wanted in zip(several, (everyone(5), everyone(3), everyone(2)), strict=True):
        same(tensor, wanted.sum(0))


def sparse() -> None:
    mine = torch.sparse_coo_tensor([[RANK, 4]], [[1.0, 2.0], [3.0, RANK]], (6, 2))
    wanted = sum(
        torch.sparse_coo_tensor([[r, 4]], [[1.0, 2.0], [3.0, r]], (6, 2)).to_dense() for r in range(SIZE)
    )
    dist.all_reduce(mine)
    same(mine.to_dense(), wanted)


def moved() -> None:
    """Broadcast, gather, scatter and the all-to-alls move any type and any number of bytes."""
    last = SIZE - 1
    for dtype in (*FLOATS, *INTEGERS, torch.bool):
        for length in (0, 1, 3, 7, 40001):
            tensor = of_rank(RANK, length, dtype=dtype)
            dist.broadcast(tensor, last)
            same(tensor, of_rank(last, length, dtype=dtype))
            mine = of_rank(RANK, length, dtype=dtype)
            outputs = [torch.empty_like(mine) for _ in range(SIZE)]
            dist.all_gather(outputs, mine)
            same(torch.stack(outputs), everyone(length, dtype=dtype))
            whole = torch.empty(SIZE * length, dtype=dtype)
            dist.all_gather_into_tensor(whole, mine)
            same(whole, everyone(length, dtype=dtype).flatten())
            dist.gather(mine, outputs if last == RANK else None, dst=last)
            dist.scatter(mine, outputs if last == RANK else None, src=last)
            same(mine, of_rank(RANK, length, dtype=dtype))
            blocks = of_rank(RANK, SIZE * length, dtype=dtype)
            received = torch.empty_like(blocks)
            dist.all_to_all_single(received, blocks)
            same(received.view(SIZE, -1), everyone(SIZE * length, dtype=dtype).view(SIZE, SIZE, -1)[:, RANK])
    slot = torch.zeros(SIZE, 5)
    slot[RANK] = of_rank(RANK, 5)
    # in place, as FSDP2 does
    dist.all_gather_into_tensor(slot, slot[RANK])
    same(slot, everyone(5))
    # a list for each rank, with a tensor for each input
    shapes = ((2, 3), (4,), (), (5, 1))
    lists = [[torch.empty(shape) for shape in shapes] for _ in range(SIZE)]
    dist.all_gather_coalesced(lists, [of_rank(RANK, *shape) for shape in shapes])
    for rank, tensors in enumerate(lists):
        for tensor, shape in zip(tensors, shapes, strict=True):
            same(tensor, of_rank(rank, *shape))
    uneven = [torch.empty(rank + 1) for rank in range(SIZE)]
    dist.all_gather(uneven, torch.full((RANK + 1,), float(RANK)))
    assert [t.tolist() for t in uneven] == [[float(rank)] * (rank + 1) for rank in range(SIZE)]


def all_to_all() -> None:
    """Rank a sends rank b a + 2 b rows."""
    rows = [RANK + 2 * other for other in range(SIZE)]
    outgoing = [torch.full((count, 2), 10.0 * RANK + other) for other, count in enumerate(rows)]
    incoming = [torch.empty(other + 2 * RANK, 2) for other in range(SIZE)]
    wanted = [torch.full((other + 2 * RANK, 2), 10.0 * other + RANK) for other in range(SIZE)]
    dist.all_to_all(incoming, outgoing)
    for found, expected in zip(incoming, wanted, strict=True):
        same(found, expected)
    whole = torch.empty(sum(len(part) for part in incoming), 2)
    dist.all_to_all_single(whole, torch.cat(outgoing), [len(part) for part in incoming], rows)
    same(whole, torch.cat(wanted))


def reduced_to_some() -> None:
    for root in range(SIZE):
        mine = of_rank(RANK, 11)
        dist.reduce(mine, root)
        same(mine, everyone(11).sum(0) if root == RANK else of_rank(RANK, 11))
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
        every = everyone(SIZE * 7, dtype=dtype).double().sum(0).view(SIZE, 7)
        output = torch.empty(7, dtype=dtype)
        dist.reduce_scatter_tensor(output, of_rank(RANK, SIZE * 7, dtype=dtype))
        same(output, every[RANK])
        dist.reduce_scatter(output, list(of_rank(RANK, SIZE * 7, dtype=dtype).chunk(SIZE)))
        same(output, every[RANK])
    whole = of_rank(RANK, SIZE * 7)
    dist.reduce_scatter_tensor(whole.view(SIZE, 7)[RANK], whole, dist.ReduceOp.AVG)
    same(whole.view(SIZE, 7)[RANK], everyone(SIZE * 7).mean(0).view(SIZE, 7)[RANK])
    uneven = torch.empty(RANK + 1)
    dist.reduce_scatter(uneven, [torch.full((rank + 1,), float(RANK)) for rank in range(SIZE)])
    same(uneven, torch.full((RANK + 1,), float(sum(range(SIZE)))))


def messages() -> None:
    """Around a ring, blocking, batched, from anybody, by tag, and with a collective call in between."""
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    received = torch.empty(100003)
    pending = dist.isend(of_rank(RANK, 100003), after, tag=3)
    dist.recv(received, before, tag=3)
    pending.wait()
    same(received, of_rank(before, 100003))
    operations = [
        dist.P2POp(dist.isend, of_rank(RANK, 5), after),
        dist.P2POp(dist.irecv, received[:5], before),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    same(received[:5], of_rank(before, 5))
    if RANK == 0:
        early = torch.empty(2)
        work = dist.irecv(early, 1, tag=9)
        dist.barrier()
        late = torch.empty(2)
        dist.recv(late, 1, tag=8)
        work.wait()
        assert early.tolist() == [9.0, 9.0] and late.tolist() == [8.0, 8.0]
        sources = []
        for _ in range(SIZE - 1):
            value = torch.empty(1)
            source = dist.recv(value)
            assert value.item() == source
            sources.append(source)
        assert sorted(sources) == list(range(1, SIZE))
    else:
        dist.barrier()
        if RANK == 1:
            dist.send(torch.full((2,), 8.0), 0, tag=8)
            dist.send(torch.full((2,), 9.0), 0, tag=9)
        dist.send(torch.tensor([float(RANK)]), 0)


def asynchronous() -> None:
    tensors = [of_rank(RANK, 1000) + i for i in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future().then(lambda future: future.value()[0].sum().item()) for work in works]
    total = everyone(1000).sum().item()
    assert [future.wait() for future in futures] == [total + i * 1000 * SIZE for i in range(20)]
    assert all(work.is_completed() for work in works) and all(work.wait() for work in works)


def groups() -> None:
    """Of some ranks, at once with others, and with calls in an order that differs between ranks."""
    pairs = [dist.new_group([rank, rank + 1]) for rank in range(SIZE - 1)]
    again = dist.new_group()
    # PyTorch 2.10, that of the variant for GPUs, always sorts
    unsorted = {"sort_ranks": False} if "sort_ranks" in signature(dist.new_group).parameters else {}
    reverse = dist.new_group(list(reversed(range(SIZE))), **unsorted) if SIZE > 1 and unsorted else again
    alone = [dist.new_group([rank]) for rank in range(SIZE)][RANK]
    mine = [(rank, group) for rank, group in enumerate(pairs) if RANK in (rank, rank + 1)]
    tensors = [torch.full((3,), float(RANK + 1)) for _ in mine]
    works = [dist.all_reduce(t, group=g, async_op=True) for t, (_, g) in zip(tensors, mine, strict=True)]
    for work in works:
        work.wait()
    assert [t[0].item() for t in tensors] == [2.0 * rank + 3 for rank, _ in mine]
    first, second = torch.ones(3), torch.ones(4)
    works = [
        dist.all_reduce(tensor, group=group, async_op=True)
        for tensor, group in ((first, None), (second, again))[:: 1 if RANK == 0 else -1]
    ]
    for work in works:
        work.wait()
    assert first.tolist() == [SIZE] * 3 and second.tolist() == [SIZE] * 4
    single = torch.ones(2)
    dist.all_reduce(single, group=alone)
    assert single.tolist() == [1.0, 1.0]
    gathered = [torch.empty(1) for _ in range(SIZE)]
    dist.all_gather(gathered, torch.tensor([float(RANK)]), group=reverse)
    assert [int(t) for t in gathered] == [dist.get_global_rank(reverse, r) for r in range(SIZE)]
    dist.destroy_process_group(again)


def objects() -> None:
    everything = [None] * SIZE
    dist.all_gather_object(everything, {"rank": RANK, "text": "x" * RANK})
    assert everything == [{"rank": rank, "text": "x" * rank} for rank in range(SIZE)]
    some = [f"from {RANK}", RANK]
    dist.broadcast_object_list(some, SIZE - 1)
    assert some == [f"from {SIZE - 1}", SIZE - 1]
    received = [None]
    dist.scatter_object_list(received, [f"for {rank}" for rank in range(SIZE)], src=0)
    assert received == [f"for {RANK}"]


def inference() -> None:
    """Tensors of inference mode, which torch lets nobody else change in place, are filled as any other."""
    with torch.inference_mode():
        mine = of_rank(RANK, 5)
        outputs = [torch.empty(5) for _ in range(SIZE)]
        dist.all_gather(outputs, mine)
        same(torch.stack(outputs), everyone(5))
        small = of_rank(RANK, 4, 3, dtype=torch.int8).t()
        dist.all_reduce(small)
        same(small, everyone(4, 3, dtype=torch.int8).sum(0).t())
        if SIZE > 1 and RANK < 2:
            dist.send(mine, 1) if RANK == 0 else dist.recv(mine, 0)
            same(mine, of_rank(0, 5))


def what_it_cannot() -> None:
    integers, tiny = torch.ones(2, dtype=torch.int32), torch.ones(2, dtype=torch.float8_e4m3fn)
    refused(ValueError, "DDL", lambda: dist.all_reduce(integers, dist.ReduceOp.BXOR))
    refused(ValueError, "DDL", lambda: dist.all_reduce(tiny))


CASES = [
    *(all_reduce, sparse, moved, all_to_all, reduced_to_some, messages, asynchronous, groups, objects),
    *(inference, what_it_cannot),
]
if __name__ == "__main__":
    left_out = {*((messages,) if SIZE == 1 else ()), *((sparse,) if DEVICE != "cpu" else ())}
    run(case for case in CASES if case not in left_out)
