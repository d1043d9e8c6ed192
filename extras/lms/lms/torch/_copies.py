"""Copies between a device and the host, beside the computation where the device has streams."""

from __future__ import annotations

from typing import Any

import torch

from lms.torch._host_memory import HostBuffer


def storage_bytes(storage: Any, device: Any) -> Any:
    """The whole storage as a tensor of bytes."""
    flat = torch.empty(0, dtype=torch.uint8, device=device)
    return flat.set_(storage, 0, (storage.nbytes(),), (1,))


class HostCopies:
    """Copies within the host's memory: every copy is over when its call returns, and there are no events."""

    asynchronous = False

    def __init__(self, device: Any) -> None:
        self.device = device

    def current(self) -> Any:
        return None

    def out(self, source: Any, to: HostBuffer, after: Any) -> Any:
        to.bytes[: source.numel()].copy_(source)
        return None

    def back(self, source: HostBuffer, nbytes: int) -> Any:
        target = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        return target.copy_(source.bytes[:nbytes])

    def back_early(self, source: HostBuffer, nbytes: int) -> tuple[Any, Any]:
        return self.back(source, nbytes), None

    def order(self, stream: Any, event: Any) -> None:
        pass

    def capturing(self) -> bool:
        return False


class StreamCopies:
    """Copies of a device with streams; they run on a stream of their own.

    Memory is always taken on the stream that computes, and given back only when that stream waits for the
    copy. So PyTorch's allocator may use it again at once, in the order of that stream, and
    Tensor.record_stream, which would keep it until the host sees the event, is not needed.
    """

    asynchronous = True

    def __init__(self, device: Any) -> None:
        self.device = device
        self._side = torch.Stream(device=device)

    def current(self) -> Any:
        return torch.accelerator.current_stream(self.device)

    def out(self, source: Any, to: HostBuffer, after: Any) -> Any:
        """Begins the copy to the host when `after`, a stream, has come to here; returns its end."""
        self._side.wait_event(after.record_event())
        if to.free_after is not None:
            self._side.wait_event(to.free_after)
        with self._side:
            to.bytes[: source.numel()].copy_(source, non_blocking=True)
        to.free_after = self._side.record_event()
        return to.free_after

    def back(self, source: HostBuffer, nbytes: int) -> Any:
        """The bytes on the device again, for the current stream, which copies them itself."""
        now = self.current()
        target = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        self.order(now, source.free_after)
        target.copy_(source.bytes[:nbytes], non_blocking=True)
        source.free_after = now.record_event()
        return target

    def back_early(self, source: HostBuffer, nbytes: int) -> tuple[Any, Any]:
        """The bytes on the device again once the event has come, which is returned with them."""
        target = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        # what had this memory before may still be read by work of the current stream
        self._side.wait_event(self.current().record_event())
        self.order(self._side, source.free_after)
        with self._side:
            target.copy_(source.bytes[:nbytes], non_blocking=True)
        source.free_after = self._side.record_event()
        return target, source.free_after

    def order(self, stream: Any, event: Any) -> None:
        """Later work of the stream is done after the event."""
        if event is not None and not event.query():
            stream.wait_event(event)

    def capturing(self) -> bool:
        """Whether a CUDA graph is being captured, in which memory has no history."""
        return self.device.type == "cuda" and bool(torch.cuda.is_current_stream_capturing())


def copies_for(device: Any) -> HostCopies | StreamCopies:
    """How to copy from and to a device."""
    return HostCopies(device) if device.type == "cpu" else StreamCopies(device)
