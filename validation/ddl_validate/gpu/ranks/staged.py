"""How fast DDL reduces memory of one device that several ranks share: by way of the host's memory."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from ..arithmetic import sum_of_whole_numbers, whole_numbers
from ..errors import GpuError
from .copies import Limits
from .session import Session


def run(session: Session, settings: dict[str, Any]) -> dict[str, Any]:
    """Times of the slowest rank by size, and what copies alone reach in between, all ranks at once."""
    ddl = session.ddl
    repetitions, sizes = int(settings["repetitions"]), [int(size) for size in settings["sizes"]]
    limits = Limits(session, int(settings["block"]), repetitions)
    rates = [limits.rates()]
    rows = []
    buffer = session.device.allocate(max(sizes))
    for size in sizes:
        right = sum_of_whole_numbers(ddl.size, 0, size // 4)
        seconds = []
        for number in range(2 + repetitions):
            session.upload(buffer.address, whole_numbers(ddl.rank, 0, size // 4))
            ddl.barrier()
            begun = time.perf_counter()
            ddl.allreduce(buffer.address, size // 4)
            elapsed = ddl.highest(time.perf_counter() - begun)[0]
            got = session.download(buffer.address, size).view(np.float32)
            if (got != right).any():
                raise GpuError(f"the sum of {size} bytes is wrong")
            if number >= 2:
                seconds.append(elapsed)
        rows.append({"bytes": size, "seconds": seconds, "median": statistics.median(seconds)})
    rates.append(limits.rates())
    middle = {name: statistics.fmean(repetition[name] for repetition in rates) for name in rates[0]}
    # several ranks share the link: what all of them together copy is its rate
    together = {name: ddl.total(middle[name])[0] for name in sorted(middle)}
    device = ddl.describe()["device"]
    buffer.free()
    limits.free()
    return {"rows": rows, "rates": together, "device": device}
