"""A rank with its GPU, its DDL and memory on both sides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ddl_library import Ddl
from ..driver import Buffer, Device, Driver, Stream
from ..errors import GpuError

GUARD_BYTES = 256
_GUARD = 0xA5


@dataclass
class Session:
    """device: that of the rank's place on its host; ranks in excess share them in turns."""

    driver: Driver
    device: Device
    ddl: Ddl
    stream: Stream
    _scratch: npt.NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))

    @classmethod
    def begin(cls, settings: dict[str, Any]) -> Session:
        """settings: "devices", how many of the host's GPUs are used (default: all)."""
        ddl = Ddl()
        ddl.init()
        driver = Driver()
        available = driver.device_count
        used = min(int(settings.get("devices") or available), available)
        if used < 1:
            raise GpuError("the driver shows no GPU")
        device = driver.open(ddl.local_rank % used)
        return cls(driver, device, ddl, device.stream())

    def scratch(self, size: int) -> npt.NDArray[np.uint8]:
        """Pinned memory for one copy at a time."""
        if len(self._scratch) < size:
            self._scratch = self.device.pinned(size)
        return self._scratch[:size]

    def upload(self, to: int, values: npt.NDArray[Any]) -> None:
        """Copy to the device, and wait for it."""
        block = self.scratch(values.nbytes)
        block[:] = values.view(np.uint8)
        self.stream.to_device(to, block)
        self.stream.synchronize()

    def download(self, source: int, size: int) -> npt.NDArray[np.uint8]:
        """Bytes of the device, copied."""
        block = self.scratch(size)
        self.stream.to_host(block, source)
        self.stream.synchronize()
        return block.copy()


class Guarded:
    """Values in memory of the device between two strips that nobody may write to. They begin at an odd
    multiple of an element's bytes: as aligned as it must be, and no more."""

    def __init__(self, session: Session, values: npt.NDArray[Any]) -> None:
        self.session = session
        self.size = values.nbytes
        self._before = GUARD_BYTES + values.itemsize
        self._whole: Buffer = session.device.allocate(self._before + self.size + GUARD_BYTES)
        self.address = self._whole.address + self._before
        session.upload(self._whole.address, np.full(self._whole.size, _GUARD, np.uint8))
        session.upload(self.address, values)

    def read(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """The contents; GpuError where a strip was written to."""
        whole = self.session.download(self._whole.address, self._whole.size)
        before, after = whole[: self._before], whole[self._before + self.size :]
        if (before != _GUARD).any() or (after != _GUARD).any():
            raise GpuError("bytes beside a buffer of the device were overwritten")
        return whole[self._before : self._before + self.size].view(dtype)

    def free(self) -> None:
        self._whole.free()
