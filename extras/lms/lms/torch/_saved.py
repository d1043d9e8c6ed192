"""The ledger of what autograd keeps on one device, and which of it is moved to the host."""

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
"""Uses of a storage that nothing else holds, beside guards: our bytes, and the Python object asked."""


class VersionGuard:
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
    """The part of tensors_in that was on its way before it was asked for."""
    host: int = 0
    """Bytes of the host's buffers in use now; of all devices."""
    peak_host: int = 0


class SavedStorage:
    """A storage that saved tensors share: on the device, on the host, or on its way."""

    __slots__ = (
        "arrival_event",
        "bytes",
        "copied",
        "eviction_event",
        "guards",
        "handles",
        "host",
        "key",
        "nbytes",
        "order",
        "prefetched",
        "stream",
    )

    def __init__(self, nbytes: int, order: int, stream: Any) -> None:
        self.nbytes, self.order, self.stream = nbytes, order, stream
        self.handles = 0
        self.guards: list[VersionGuard] = []  # while the storage is that in which it was saved
        self.bytes: Any = None  # on the device
        self.key = 0  # address of its storage there
        self.host: HostBuffer | None = None
        self.copied = False  # the host has the same bytes
        self.eviction_event: Any = None  # event, or True: the copy to the host has begun
        self.arrival_event: Any = None  # event of the copy from the host
        self.prefetched = False


class _InOrder:
    """Storages in the order of their last saving."""

    def __init__(self) -> None:
        self._storages: list[SavedStorage] = []

    def __iter__(self) -> Iterator[SavedStorage]:
        return iter(self._storages)

    def __len__(self) -> int:
        return len(self._storages)

    def add(self, saved: SavedStorage) -> None:
        insort(self._storages, saved, key=_order)

    def discard(self, saved: SavedStorage) -> None:
        at = bisect_left(self._storages, saved.order, key=_order)
        if at < len(self._storages) and self._storages[at] is saved:
            del self._storages[at]

    def before(self, order: int, number: int) -> list[SavedStorage]:
        """The last `number` that were saved before `order`, the latest first."""
        at = bisect_left(self._storages, order, key=_order)
        return self._storages[max(at - number, 0) : at][::-1]


def _order(saved: SavedStorage) -> int:
    return saved.order


class Handle:
    """What autograd keeps instead of a tensor."""

    __slots__ = ("_conj", "_dtype", "_guard", "_ledger", "_neg", "_offset", "_size", "_storage", "_stride")

    def __init__(self, ledger: Ledger, saved: SavedStorage, tensor: Any) -> None:
        self._ledger, self._storage, self._guard = ledger, saved, VersionGuard(tensor)
        saved.guards.append(self._guard)
        self._dtype, self._size, self._stride = tensor.dtype, tensor.size(), tensor.stride()
        self._offset = tensor.storage_offset()
        self._conj, self._neg = tensor.is_conj(), tensor.is_neg()

    def tensor(self) -> Any:
        """The tensor that was saved."""
        self._guard.check()
        return self._ledger.load(self._storage, self._seen)

    def _seen(self, device_bytes: Any) -> Any:
        view = torch.empty(0, dtype=self._dtype, device=device_bytes.device)
        view.set_(device_bytes.untyped_storage(), self._offset, self._size, self._stride)
        if self._conj:
            view = view.conj()
        return torch._neg_view(view) if self._neg else view

    def __del__(self) -> None:
        self._ledger.release(self._storage)


class Ledger:
    """The ledger of one device.

    Storages are moved in the order in which they were saved for the last time: backward needs them in the
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
        self._released: deque[SavedStorage] = deque()
        self._by_key: dict[int, SavedStorage] = {}
        self._here, self._away = _InOrder(), _InOrder()
        self._leaving: deque[SavedStorage] = deque()
        self._leaving_bytes = 0
        self._saved_so_far = 0

    def save(self, tensor: Any) -> Handle:
        """Keeps the tensor's storage, and makes room for it."""
        with self._alone(), torch.no_grad():
            storage = tensor.untyped_storage()
            saved = self._by_key.get(storage._cdata)
            self._saved_so_far += 1
            if saved is None:
                saved = self._new(storage, tensor.device)
            else:
                self._here.discard(saved)
                self._keep_here(saved)
                saved.order = self._saved_so_far
                self._here.add(saved)
            saved.handles += 1
            return Handle(self, saved, tensor)

    def load(self, saved: SavedStorage, seen: Callable[[Any], Any]) -> Any:
        """What `seen` makes of the storage's bytes on the device; asks early for what will be needed next."""
        with self._alone(), torch.no_grad():
            if saved.bytes is None:
                self._bring(saved)
            elif saved.arrival_event is not None:
                self._copies.order(self._copies.current(), saved.arrival_event)
            if saved.prefetched:
                self.stats.tensors_prefetched += 1
                saved.prefetched = False
            self._keep_here(saved)
            # whoever gets the tensor could change it
            saved.copied = False
            result = seen(saved.bytes)
            self._ask_early(saved)
            return result

    def capturing(self) -> bool:
        """Whether a CUDA graph is being captured, which must not depend on what this ledger does."""
        return self._copies.capturing()

    def release(self, saved: SavedStorage) -> None:
        """A handle is gone; Python's collector may say so at any place of this thread's program."""
        self._released.append(saved)
        self._settle()

    def settle(self) -> Stats:
        """The ledger as it is now."""
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
            saved = self._released.popleft()
            saved.handles -= 1
            if not saved.handles:
                self._forget(saved)

    def _forget(self, saved: SavedStorage) -> None:
        if saved.eviction_event is not None:
            self._copies.order(saved.stream, saved.eviction_event)
            self._keep_here(saved)
        if saved.arrival_event is not None:
            self._copies.order(saved.stream, saved.arrival_event)
        self._here.discard(saved)
        self._away.discard(saved)
        if saved.bytes is not None:
            self._drop(saved)
        if saved.host is not None:
            self._memory.give(saved.host)
            saved.host = None
        self.stats.kept -= saved.nbytes

    def _new(self, storage: Any, device: Any) -> SavedStorage:
        nbytes = storage.nbytes()
        self.stats.largest = max(self.stats.largest, nbytes)
        self._make_room(nbytes)
        saved = SavedStorage(nbytes, self._saved_so_far, self._copies.current())
        self._take(saved, storage_bytes(storage, device))
        self._here.add(saved)
        self.stats.kept += nbytes
        self.stats.peak_kept = max(self.stats.peak_kept, self.stats.kept)
        self._send_early()
        return saved

    def _take(self, saved: SavedStorage, device_bytes: Any) -> None:
        saved.bytes, saved.key = device_bytes, device_bytes.untyped_storage()._cdata
        self._by_key[saved.key] = saved
        self.stats.saved += saved.nbytes
        self.stats.peak_saved = max(self.stats.peak_saved, self.stats.saved)
        self.stats.peak_over = max(self.stats.peak_over, self.stats.saved - self.limit)

    def _drop(self, saved: SavedStorage) -> None:
        del self._by_key[saved.key]
        for guard in saved.guards:
            guard.close()
        saved.guards.clear()
        saved.bytes = saved.arrival_event = None
        saved.prefetched = False
        self.stats.saved -= saved.nbytes

    def _make_room(self, nbytes: int) -> None:
        while self._leaving and self.stats.saved + nbytes > self.limit:
            self._finish(self._leaving[0])
        if self.stats.saved + nbytes <= self.limit:
            return
        for saved in [saved for saved in self._here if self._movable(saved)]:
            self._send(saved)
            self._finish(saved)
            if self.stats.saved + nbytes <= self.limit:
                return

    def _send_early(self) -> None:
        """Begins to copy what the next tensors will drive out, so that they need not wait for it."""
        if not self._copies.asynchronous:
            return
        while (
            self._leaving
            and self._leaving[0].eviction_event is not True
            and self._leaving[0].eviction_event.query()
        ):
            self._finish(self._leaving[0])
        margin = min(self.prefetch * self.stats.largest, self.limit // 4)
        if self.stats.saved - self._leaving_bytes <= self.limit - margin:
            return
        for saved in [saved for saved in self._here if saved.eviction_event is None]:
            if self._movable(saved):
                self._send(saved)
                if self.stats.saved - self._leaving_bytes <= self.limit - margin:
                    return

    def _movable(self, saved: SavedStorage) -> bool:
        if saved.nbytes < self.min_size or saved.bytes is None:
            return False
        storage = saved.bytes.untyped_storage()
        return bool(torch._C._storage_Use_Count(storage._cdata) == _OURS_ALONE + len(saved.guards))

    def _send(self, saved: SavedStorage) -> None:
        """Begins to move a storage to the host, where it may still be from last time."""
        if saved.eviction_event is not None:
            return
        self._copies.order(saved.stream, saved.arrival_event)
        if saved.host is None:
            saved.host = self._memory.take(saved.nbytes, saved.bytes.device)
        if saved.copied:
            event = saved.host.free_after
        else:
            event = self._copies.out(saved.bytes, saved.host, saved.stream)
            saved.copied = True
            self.stats.moved_out += saved.nbytes
            self.stats.tensors_out += 1
        saved.eviction_event = True if event is None else event
        self._leaving.append(saved)
        self._leaving_bytes += saved.nbytes

    def _finish(self, saved: SavedStorage) -> None:
        """The device's memory of a storage that was sent is free for the stream that it is of."""
        if saved.eviction_event is not True:
            self._copies.order(saved.stream, saved.eviction_event)
        movable = self._movable(saved)
        self._keep_here(saved)
        if movable:
            self._here.discard(saved)
            self._drop(saved)
            self._away.add(saved)

    def _keep_here(self, saved: SavedStorage) -> None:
        if saved.eviction_event is not None:
            saved.eviction_event = None
            self._leaving.remove(saved)
            self._leaving_bytes -= saved.nbytes

    def _bring(self, saved: SavedStorage) -> None:
        self._make_room(saved.nbytes)
        assert saved.host is not None
        self._arrive(saved, self._copies.back(saved.host, saved.nbytes))

    def _ask_early(self, saved: SavedStorage) -> None:
        for before in self._away.before(saved.order, self.prefetch):
            if self.stats.saved + before.nbytes > self.limit:
                return
            assert before.host is not None
            device_bytes, event = self._copies.back_early(before.host, before.nbytes)
            self._arrive(before, device_bytes)
            before.arrival_event, before.prefetched = event, True

    def _arrive(self, saved: SavedStorage, device_bytes: Any) -> None:
        self._away.discard(saved)
        saved.stream = self._copies.current()
        self._take(saved, device_bytes)
        self._here.add(saved)
        self.stats.moved_in += saved.nbytes
        self.stats.tensors_in += 1
