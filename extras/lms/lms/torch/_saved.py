"""The account of what autograd keeps on one device, and which of it is moved to the host."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch

from lms.torch._copies import HostCopies, StreamCopies, storage_bytes
from lms.torch._host_memory import HostBuffer, HostMemory

_OURS_ALONE = 2
"""Uses of a storage that nothing else holds, beside witnesses: our bytes, and the Python object asked."""


class Witness:
    """Finds changes in place after a tensor was saved, as autograd does without hooks."""

    __slots__ = ("_changed", "_same", "_version")

    def __init__(self, tensor: Any) -> None:
        self._same = tensor.detach()
        self._version, self._changed = tensor._version, False

    def tensor(self) -> Any:
        """The tensor, if it is unchanged."""
        self.check()
        return self._same

    def check(self) -> None:
        """Raises RuntimeError where autograd would."""
        if self._has_changed():
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace "
                "operation after it was saved for the backward pass: save a clone(), or do not change it"
            )

    def close(self) -> None:
        """Nobody else has the storage any more."""
        self._changed, self._same = self._has_changed(), None

    def _has_changed(self) -> bool:
        return self._changed if self._same is None else bool(self._same._version != self._version)


@dataclass
class Stats:
    """Bytes and tensors that autograd keeps for the backward pass; without leaves, such as parameters."""

    limit: int = 0
    saved: int = 0
    """On the device now."""
    peak_saved: int = 0
    """The most that was on the device."""
    kept: int = 0
    """On the device and on the host now."""
    peak_kept: int = 0
    """The most that was kept: what the device would have had to hold without Large Model Support."""
    peak_over: int = 0
    """The most by which the limit was exceeded, by tensors in use elsewhere or smaller than min_size."""
    largest: int = 0
    """The largest storage that was kept."""
    moved_out: int = 0
    moved_in: int = 0
    tensors_out: int = 0
    tensors_in: int = 0
    tensors_prefetched: int = 0
    """Of tensors_in, those that were on their way before they were asked for."""
    host: int = 0
    """Bytes of the host's buffers in use now; of all devices."""
    peak_host: int = 0


class Block:
    """A storage that saved tensors share: on the device, on the host, or on its way."""

    __slots__ = (
        "arrived",
        "arrives_early",
        "bytes",
        "copied",
        "handles",
        "host",
        "key",
        "left",
        "nbytes",
        "order",
        "stream",
        "witnesses",
    )

    def __init__(self, nbytes: int, order: int, stream: Any) -> None:
        self.nbytes, self.order, self.stream = nbytes, order, stream
        self.handles = 0
        self.witnesses: list[Witness] = []  # while the storage is that in which it was saved
        self.bytes: Any = None  # on the device
        self.key = 0  # address of its storage there
        self.host: HostBuffer | None = None
        self.copied = False  # the host has the same bytes
        self.left: Any = None  # event, or True: the copy to the host has begun
        self.arrived: Any = None  # event of the copy from the host
        self.arrives_early = False


class _InOrder:
    """Blocks in the order of their last saving."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, block: Block) -> None:
        insort(self._blocks, block, key=_order)

    def discard(self, block: Block) -> None:
        at = bisect_left(self._blocks, block.order, key=_order)
        if at < len(self._blocks) and self._blocks[at] is block:
            del self._blocks[at]

    def before(self, order: int, number: int) -> list[Block]:
        """The last `number` that were saved before `order`, the latest first."""
        at = bisect_left(self._blocks, order, key=_order)
        return self._blocks[max(at - number, 0) : at][::-1]


def _order(block: Block) -> int:
    return block.order


class Handle:
    """What autograd keeps instead of a tensor."""

    __slots__ = ("_account", "_block", "_conj", "_dtype", "_neg", "_offset", "_size", "_stride", "_witness")

    def __init__(self, account: Account, block: Block, tensor: Any) -> None:
        self._account, self._block, self._witness = account, block, Witness(tensor)
        block.witnesses.append(self._witness)
        self._dtype, self._size, self._stride = tensor.dtype, tensor.size(), tensor.stride()
        self._offset = tensor.storage_offset()
        self._conj, self._neg = tensor.is_conj(), tensor.is_neg()

    def tensor(self) -> Any:
        """The tensor that was saved."""
        self._witness.check()
        return self._account.load(self._block, self._seen)

    def _seen(self, block_bytes: Any) -> Any:
        made = torch.empty(0, dtype=self._dtype, device=block_bytes.device)
        made.set_(block_bytes.untyped_storage(), self._offset, self._size, self._stride)
        if self._conj:
            made = made.conj()
        return torch._neg_view(made) if self._neg else made

    def __del__(self) -> None:
        self._account.release(self._block)


class Account:
    """Of one device.

    Blocks are moved in the order in which they were saved for the last time: backward needs them in the
    reverse order, so the first of them is needed last. A storage that anything but saved tensors holds is not
    moved, as that would free nothing; this is asked when room is needed, so that what the program has dropped
    since can go.
    """

    def __init__(
        self, copies: HostCopies | StreamCopies, memory: HostMemory, limit: int, min_size: int, prefetch: int
    ) -> None:
        self.limit, self.min_size, self.prefetch = limit, min_size, prefetch
        self.stats = Stats(limit)
        self._copies, self._memory = copies, memory
        self._lock = Lock()
        self._released: deque[Block] = deque()
        self._by_key: dict[int, Block] = {}
        self._here, self._away = _InOrder(), _InOrder()
        self._leaving: deque[Block] = deque()
        self._leaving_bytes = 0
        self._saved_so_far = 0

    def save(self, tensor: Any) -> Handle:
        """Keeps the tensor's storage, and makes room for it."""
        with self._alone(), torch.no_grad():
            storage = tensor.untyped_storage()
            block = self._by_key.get(storage._cdata)
            self._saved_so_far += 1
            if block is None:
                block = self._new(storage, tensor.device)
            else:
                self._here.discard(block)
                self._keep_here(block)
                block.order = self._saved_so_far
                self._here.add(block)
            block.handles += 1
            return Handle(self, block, tensor)

    def load(self, block: Block, seen: Callable[[Any], Any]) -> Any:
        """What `seen` makes of the block's bytes on the device; asks early for what will be needed next."""
        with self._alone(), torch.no_grad():
            if block.bytes is None:
                self._bring(block)
            elif block.arrived is not None:
                self._copies.order(self._copies.current(), block.arrived)
            if block.arrives_early:
                self.stats.tensors_prefetched += 1
                block.arrives_early = False
            self._keep_here(block)
            # whoever gets the tensor could change it
            block.copied = False
            made = seen(block.bytes)
            self._ask_early(block)
            return made

    def capturing(self) -> bool:
        """Whether a CUDA graph is being captured, which must not depend on what this account does."""
        return self._copies.capturing()

    def release(self, block: Block) -> None:
        """A handle is gone; Python's collector may say so at any place of this thread's program."""
        self._released.append(block)
        self._settle()

    def settle(self) -> Stats:
        """The account as it is now."""
        self._settle()
        self.stats.host, self.stats.peak_host = self._memory.used, self._memory.peak
        return self.stats

    def reset(self) -> None:
        """Starts the peaks and sums anew from what is there now."""
        with self._alone():
            now = self.stats
            self.stats = Stats(self.limit, now.saved, now.saved, now.kept, now.kept)
            self._memory.peak = self._memory.used

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock:
            self._forget_released()
            try:
                yield
            finally:
                self._forget_released()
        self._settle()

    def _settle(self) -> None:
        # Whoever has the lock looks again when it is free.
        while self._released and self._lock.acquire(blocking=False):
            try:
                self._forget_released()
            finally:
                self._lock.release()

    def _forget_released(self) -> None:
        while self._released:
            block = self._released.popleft()
            block.handles -= 1
            if not block.handles:
                self._forget(block)

    def _forget(self, block: Block) -> None:
        if block.left is not None:
            self._copies.order(block.stream, block.left)
            self._keep_here(block)
        if block.arrived is not None:
            self._copies.order(block.stream, block.arrived)
        self._here.discard(block)
        self._away.discard(block)
        if block.bytes is not None:
            self._drop(block)
        if block.host is not None:
            self._memory.give(block.host)
            block.host = None
        self.stats.kept -= block.nbytes

    def _new(self, storage: Any, device: Any) -> Block:
        nbytes = storage.nbytes()
        self.stats.largest = max(self.stats.largest, nbytes)
        self._make_room(nbytes)
        block = Block(nbytes, self._saved_so_far, self._copies.current())
        self._take(block, storage_bytes(storage, device))
        self._here.add(block)
        self.stats.kept += nbytes
        self.stats.peak_kept = max(self.stats.peak_kept, self.stats.kept)
        self._send_early()
        return block

    def _take(self, block: Block, block_bytes: Any) -> None:
        block.bytes, block.key = block_bytes, block_bytes.untyped_storage()._cdata
        self._by_key[block.key] = block
        self.stats.saved += block.nbytes
        self.stats.peak_saved = max(self.stats.peak_saved, self.stats.saved)
        self.stats.peak_over = max(self.stats.peak_over, self.stats.saved - self.limit)

    def _drop(self, block: Block) -> None:
        del self._by_key[block.key]
        for witness in block.witnesses:
            witness.close()
        block.witnesses.clear()
        block.bytes = block.arrived = None
        block.arrives_early = False
        self.stats.saved -= block.nbytes

    def _make_room(self, nbytes: int) -> None:
        while self._leaving and self.stats.saved + nbytes > self.limit:
            self._finish(self._leaving[0])
        if self.stats.saved + nbytes <= self.limit:
            return
        for block in [block for block in self._here if self._movable(block)]:
            self._send(block)
            self._finish(block)
            if self.stats.saved + nbytes <= self.limit:
                return

    def _send_early(self) -> None:
        """Begins to copy what the next tensors will drive out, so that they need not wait for it."""
        if not self._copies.asynchronous:
            return
        while self._leaving and self._leaving[0].left is not True and self._leaving[0].left.query():
            self._finish(self._leaving[0])
        wanted = min(self.prefetch * self.stats.largest, self.limit // 4)
        if self.stats.saved - self._leaving_bytes <= self.limit - wanted:
            return
        for block in [block for block in self._here if block.left is None]:
            if self._movable(block):
                self._send(block)
                if self.stats.saved - self._leaving_bytes <= self.limit - wanted:
                    return

    def _movable(self, block: Block) -> bool:
        if block.nbytes < self.min_size or block.bytes is None:
            return False
        storage = block.bytes.untyped_storage()
        return bool(torch._C._storage_Use_Count(storage._cdata) == _OURS_ALONE + len(block.witnesses))

    def _send(self, block: Block) -> None:
        """Begins to move a block to the host, where it may still be from last time."""
        if block.left is not None:
            return
        self._copies.order(block.stream, block.arrived)
        if block.host is None:
            block.host = self._memory.take(block.nbytes, block.bytes.device)
        if block.copied:
            event = block.host.free_after
        else:
            event = self._copies.out(block.bytes, block.host, block.stream)
            block.copied = True
            self.stats.moved_out += block.nbytes
            self.stats.tensors_out += 1
        block.left = True if event is None else event
        self._leaving.append(block)
        self._leaving_bytes += block.nbytes

    def _finish(self, block: Block) -> None:
        """The device's memory of a block that was sent is free for the stream that it is of."""
        if block.left is not True:
            self._copies.order(block.stream, block.left)
        movable = self._movable(block)
        self._keep_here(block)
        if movable:
            self._here.discard(block)
            self._drop(block)
            self._away.add(block)

    def _keep_here(self, block: Block) -> None:
        if block.left is not None:
            block.left = None
            self._leaving.remove(block)
            self._leaving_bytes -= block.nbytes

    def _bring(self, block: Block) -> None:
        self._make_room(block.nbytes)
        assert block.host is not None
        self._arrive(block, self._copies.back(block.host, block.nbytes))

    def _ask_early(self, block: Block) -> None:
        for before in self._away.before(block.order, self.prefetch):
            if self.stats.saved + before.nbytes > self.limit:
                return
            assert before.host is not None
            there, event = self._copies.back_early(before.host, before.nbytes)
            self._arrive(before, there)
            before.arrived, before.arrives_early = event, True

    def _arrive(self, block: Block, block_bytes: Any) -> None:
        self._away.discard(block)
        block.stream = self._copies.current()
        self._take(block, block_bytes)
        self._here.add(block)
        self.stats.moved_in += block.nbytes
        self.stats.tensors_in += 1
