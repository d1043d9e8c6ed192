"""Ranks that disagree, are late, or give up: an error on every rank that waits, which names the rank."""

import functools
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("ddl", timeout=timedelta(seconds=2))
RANK, SIZE = dist.get_rank(), dist.get_world_size()


def said(call: Callable[[], object]) -> str:
    try:
        call()
    except (dist.DistBackendError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("no error")


def in_a_group() -> None:
    """Its failure leaves other groups usable."""
    group = dist.new_group()
    text = said(lambda: dist.all_reduce(torch.ones(3 + RANK), group=group))
    assert text.startswith("DistBackendError: [ERROR DDL-1-7] ") and "rank 1 " in text, text
    assert text.count("element") >= 2, text
    again = said(lambda: dist.barrier(group))
    assert "[ERROR DDL-1-7]" in again, again


def blocks_differ() -> None:
    group = dist.new_group()
    parts = [torch.ones(2 if (RANK, other) == (0, 1) else 1) for other in range(SIZE)]
    text = said(lambda: dist.all_to_all([torch.empty(1) for _ in range(SIZE)], parts, group=group))
    assert "[ERROR DDL-1-7] rank 0 " in text and "sends 8 bytes to rank 1 " in text, text


def messages_differ() -> None:
    if RANK == 0:
        dist.send(torch.ones(3), 1)
    elif RANK == 1:
        text = said(lambda: dist.recv(torch.empty(4), 0))
        assert "rank 0 " in text and "sent 12 bytes" in text and "expects 16" in text, text


def no_message() -> None:
    if RANK == 1:
        start = time.monotonic()
        text = said(lambda: dist.recv(torch.empty(4), 0, tag=5))
        assert "recv from rank 0 on rank 1" in text and time.monotonic() - start < 6, text
    else:
        # The barrier that follows waits for rank 1 no longer than rank 1 waits for its message.
        time.sleep(2)


def own_time_limits() -> None:
    """A call's own limit, or one that the group is given later, counts in place of the group's."""

    def by_options(group: dist.ProcessGroup) -> None:
        options = dist.AllreduceOptions()
        options.timeout = timedelta(seconds=0.25)
        group.allreduce([torch.ones(3)], options).wait()

    def by_group(group: dist.ProcessGroup) -> None:
        group.set_timeout(timedelta(seconds=0.25))
        dist.all_reduce(torch.ones(3), group=group)

    def by_barrier(group: dist.ProcessGroup) -> None:
        group.monitored_barrier(timedelta(seconds=0.25))

    for call in (by_options, by_group, by_barrier):
        group = dist.new_group(timeout=timedelta(seconds=60))
        if RANK == 0:
            text = said(functools.partial(call, group))
            assert "Timed out after 0.25 s: rank 1 " in text, text


def late() -> None:
    """The time limit of init_process_group is that of its calls."""
    if RANK == 1:
        time.sleep(7)
        # What the others gave up is no call to join.
        text = said(dist.barrier)
        assert "[ERROR DDL-1-8]" in text and "rank 1 " in text, text
    else:
        start = time.monotonic()
        text = said(dist.barrier)
        assert "[ERROR DDL-1-8]" in text and "rank 1 " in text and time.monotonic() - start < 6, text


def begun_again() -> None:
    """After a failure of the group of all ranks a new one works."""
    dist.destroy_process_group()
    dist.init_process_group("ddl", timeout=timedelta(seconds=20))
    for group in (None, dist.new_group(), dist.new_group([0])):
        if group == dist.GroupMember.NON_GROUP_MEMBER:
            continue
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        value = torch.tensor([RANK + 1.0])
        dist.all_reduce(value, group=group)
        assert value.item() == sum(rank + 1 for rank in ranks), (value, ranks)
    dist.barrier()
    dist.destroy_process_group()


for case in (in_a_group, blocks_differ, messages_differ, no_message, own_time_limits):
    case()
    dist.barrier()
    sys.stdout.write(f"passed {case.__name__}\n")
    sys.stdout.flush()
for case in (late, begun_again):
    case()
    sys.stdout.write(f"passed {case.__name__}\n")
    sys.stdout.flush()
