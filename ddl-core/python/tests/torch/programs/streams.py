"""Calls on tensors of a GPU among the work of its streams: who waits for whom, and whose memory is whose."""

import ctypes
import datetime
import gc
import threading

import torch
import torch.distributed as dist
from _cases import refused, run
from _device import DEVICE, init_process_group

init_process_group()
RANK, SIZE = dist.get_rank(), dist.get_world_size()
TOTAL = SIZE * (SIZE + 1) / 2
STORE = dist.distributed_c10d._get_default_store()
STORE.set_timeout(datetime.timedelta(seconds=60))
MODULE = getattr(torch, DEVICE)


def mine(length: int = 4000) -> torch.Tensor:
    """Filled by a copy that is late."""
    return torch.full((length,), RANK + 1.0, device="cpu", pin_memory=True).to(DEVICE, non_blocking=True)


def after_rank_0_went_on(name: str) -> None:
    """The others make a call when rank 0 has issued its, and gone on."""
    STORE.wait([name]) if RANK else STORE.set(name, "")


def copies_of_the_host(number: float) -> None:
    """What holds a lock of the driver's while it waits for a stream: copies of memory that is not pinned."""
    sent = torch.full((4000,), number, device="cpu")
    assert torch.equal((sent.to(DEVICE) * 2).cpu(), sent * 2)


def the_host_goes_on() -> None:
    """Between a call and its wait, also the first of a group; wait() returns when the call is complete."""
    tensor = mine()
    if RANK == 0:
        work = dist.all_reduce(tensor, async_op=True)
        copies_of_the_host(5)
        assert not work.is_completed()
        refused(RuntimeError, "time", lambda: work.wait(datetime.timedelta(milliseconds=100)))
        after_rank_0_went_on("host")
    else:
        after_rank_0_went_on("host")
        work = dist.all_reduce(tensor, async_op=True)
    assert work.wait() and work.is_completed() and work.is_success()
    assert (tensor * 2).cpu().eq(2 * TOTAL).all()


def other_threads_go_on() -> None:
    """While one waits for a call, which none of them holds up."""
    tensor = mine()
    if RANK:
        after_rank_0_went_on("threads")
        work = dist.all_reduce(tensor, async_op=True)
    else:
        work = dist.all_reduce(tensor, async_op=True)
        side = torch.Stream(DEVICE)

        def other() -> None:
            with side:
                for number in range(10):
                    copies_of_the_host(number)
            after_rank_0_went_on("threads")
            with side:
                for number in range(10):
                    copies_of_the_host(number)

        thread = threading.Thread(target=other)
        thread.start()
    work.synchronize()
    assert work.is_completed() and tensor.cpu().eq(TOTAL).all()
    if RANK == 0:
        thread.join()


def calls_and_copies_alternate() -> None:
    """As training does, with several calls under way; what comes next begins after wait()."""
    for turn in range(10):
        tensors = [mine(1000 * (i + 1)) + turn for i in range(4)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        copies_of_the_host(turn)
        for work, tensor in zip(works, tensors, strict=True):
            work.wait()
            assert (tensor + 1).cpu().eq(TOTAL + SIZE * turn + 1).all()


def streams_go_on() -> None:
    """A call is made on one stream and waited for on another; a third goes on meanwhile."""
    side, third = torch.Stream(DEVICE), torch.Stream(DEVICE)
    if RANK:
        after_rank_0_went_on("streams")
    with side:
        tensor = mine()
        work = dist.all_reduce(tensor, async_op=True)
    with third:
        assert mine().sum().item() == (RANK + 1) * 4000
    with side:
        assert (mine() * 2).sum().item() == (RANK + 1) * 8000
    if RANK == 0:
        after_rank_0_went_on("streams")
    work.wait()
    assert tensor.cpu().eq(TOTAL).all()


def futures_wait() -> None:
    """They are complete when their call is; callbacks run on streams of their own."""
    tensor = mine()
    if RANK:
        after_rank_0_went_on("future")
    future = dist.all_reduce(tensor, async_op=True).get_future()
    twice = future.then(lambda done: done.value()[0] * 2)
    if RANK == 0:
        assert not future.done() and not twice.done()
        copies_of_the_host(5)
        after_rank_0_went_on("future")
    assert (twice.wait() + 1).cpu().eq(2 * TOTAL + 1).all() and future.done()


def memory_is_kept() -> None:
    """What the program drops after its call is not another tensor's before the call is over."""
    tensors = [mine() for _ in range(5)]
    if RANK:
        after_rank_0_went_on("kept")
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    kept = tensors.pop()
    tensors.clear()
    others = [torch.full((4000,), -1.0, device="cpu").to(DEVICE) for _ in range(5)]
    if RANK == 0:
        after_rank_0_went_on("kept")
    for work in works:
        work.wait()
    assert kept.cpu().eq(TOTAL).all()
    assert all(other.cpu().eq(-1).all() for other in others)


def storage_is_freed() -> None:
    """As FSDP does with what it has gathered, as soon as the last kernel is queued."""
    whole = torch.empty(SIZE * 4000)
    part = mine()
    dist.all_gather_into_tensor(whole, part)
    copy = whole.clone()
    whole.untyped_storage().resize_(0)
    part.untyped_storage().resize_(0)
    # the same memory, on the same stream
    others = [torch.full((SIZE * 4000,), -1.0, device="cpu").to(DEVICE) for _ in range(3)]
    wanted = torch.arange(1.0, SIZE + 1, device="cpu").repeat_interleave(4000)
    assert torch.equal(copy.cpu(), wanted)
    assert all(other.cpu().eq(-1).all() for other in others)


def messages_in_any_order() -> None:
    """What is waited for may come after a message that was to be received before it."""
    if RANK == 0:
        first, second = torch.empty(3000), torch.empty(3000)
        works = [dist.irecv(first, 1, tag=1), dist.irecv(second, 1, tag=2)]
        works[1].wait()
        dist.send(second + 1, 1, tag=3)
        works[0].wait()
        assert second.cpu().eq(5).all() and first.cpu().eq(6).all()
        for number in range(20):
            dist.recv(first, 1, tag=4)
            assert first.cpu().eq(number).all()
    elif RANK == 1:
        dist.send(torch.full((3000,), 5.0), 0, tag=2)
        answer = torch.empty(3000)
        dist.recv(answer, 0, tag=3)
        dist.send(answer, 0, tag=1)
        # of the same tag: in order, whichever memory they are in
        for number in range(20):
            dist.isend(torch.full((3000,), float(number), device=DEVICE), 0, tag=4)


def messages_take_memory() -> None:
    """Pinned, while others are under way."""
    lengths = [3000, 200_000]
    numbers = [torch.full((length,), 5.0) for length in lengths]
    places = [[torch.empty(length) for length in lengths] for _ in range(2)]
    MODULE.synchronize()
    if RANK == 0:
        works = [dist.irecv(place, 1, tag=10 + i) for i, place in enumerate(places[0])]
        later = [dist.irecv(place, 1, tag=20 + i) for i, place in enumerate(places[1])]
        for work in later:
            work.wait()
        for i, place in enumerate(places[1]):
            dist.send(place, 1, tag=30 + i)
        for work in works:
            work.wait()
        assert all(place.cpu().eq(5).all() for pair in places for place in pair)
    elif RANK == 1:
        for i, tensor in enumerate(numbers):
            dist.send(tensor, 0, tag=20 + i)
        for i, place in enumerate(places[0]):
            dist.recv(place, 0, tag=30 + i)
        for i, place in enumerate(places[0]):
            dist.send(place, 0, tag=10 + i)


def calls_take_memory() -> None:
    """For copies beside their tensors, on the thread that makes them, also in the first of a group."""
    splits = [1000 + 10 * (rank == RANK) for rank in range(SIZE)]
    whole = torch.full((sum(splits),), RANK + 1.0)
    parts = [torch.empty(700) for _ in range(SIZE)]
    spread, part = torch.empty(sum(splits)), torch.full((700,), RANK + 1.0)
    MODULE.synchronize()
    for group in (None, dist.new_group(list(range(SIZE)))):
        dist.all_reduce(torch.ones(1), group=group)
        dist.all_to_all_single(spread, whole, splits, splits, group=group)
        dist.all_gather(parts, part, group=group)
    MODULE.synchronize()
    assert set(spread.cpu().tolist()) == set(range(1, SIZE + 1))
    assert [int(part.cpu()[0]) for part in parts] == list(range(1, SIZE + 1))


def memory_given_back() -> None:
    """As groups_give_back on a real GPU, which tells no more than its free memory."""
    for _ in range(5):
        one_group()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(45):
        one_group()
    # other ranks may share the GPU; 45 groups that give nothing back take far more than this
    assert torch.cuda.mem_get_info()[0] > before - (16 << 20), (before, torch.cuda.mem_get_info())


def one_group() -> None:
    group = dist.new_group(list(range(SIZE)))
    tensor = torch.ones(100)
    dist.all_reduce(tensor, group=group)
    dist.all_reduce(tensor, group=group)
    if RANK < 2:
        message = torch.ones(100)
        dist.send(message, 1, group=group) if RANK == 0 else dist.recv(message, 0, group=group)
    MODULE.synchronize()
    dist.destroy_process_group(group)
    dist.barrier()


def groups_give_back() -> None:
    """What a group has taken of the device is there for the next one."""
    if DEVICE == "cuda":
        memory_given_back()
        return
    driver = ctypes.CDLL("libcuda.so.1")
    driver.stand_in_count.restype = ctypes.c_uint64
    kinds = ("streams", "events", "memory", "host_memory", "registrations", "ipc", "modules", "communicators")

    def held() -> dict[str, int]:
        gc.collect()
        return {kind: driver.stand_in_count(f"held_{kind}".encode()) for kind in kinds}

    for _ in range(5):
        one_group()
    before = held()
    for _ in range(45):
        one_group()
    after = held()
    # The stand-in's own device keeps events until it looks at them.
    assert after["events"] <= before["events"] + 8, (before, after)
    assert {**after, "events": 0} == {**before, "events": 0}


def a_failure_is_told() -> None:
    """By the wait, and by the next call where nobody has waited."""
    some = dist.new_group(list(range(SIZE)))
    dist.all_reduce(torch.ones(1), group=some)
    work = dist.all_reduce(torch.ones(100 + RANK), group=some, async_op=True)
    for _ in range(2):
        refused(dist.DistBackendError, "DDL-1-7", lambda: work.wait())
    assert work.is_completed() and not work.is_success()
    forgotten = dist.all_reduce(torch.ones(100 + RANK), group=some, async_op=True)
    while not forgotten.is_completed():
        pass
    refused(
        dist.DistBackendError, "DDL-1-7", lambda: dist.all_reduce(torch.ones(3), group=some, async_op=True)
    )
    fine = torch.ones(3)
    dist.all_reduce(fine)
    assert fine.tolist() == [SIZE] * 3


def mixed() -> None:
    on_host = torch.ones(SIZE * 3, device="cpu")
    refused(ValueError, "one device", lambda: dist.all_gather_into_tensor(on_host, torch.ones(3)))
    both = [torch.ones(3, device="cpu"), torch.ones(3)]
    for tensor in both:
        dist.all_reduce(tensor)
    assert [tensor.tolist() for tensor in both] == [[SIZE] * 3] * 2


CASES = [
    *(the_host_goes_on, other_threads_go_on, calls_and_copies_alternate, streams_go_on, futures_wait),
    *(memory_is_kept, storage_is_freed),
    *(messages_in_any_order, messages_take_memory, calls_take_memory),
    *(groups_give_back, a_failure_is_told, mixed),
]
if __name__ == "__main__":
    run(CASES)
