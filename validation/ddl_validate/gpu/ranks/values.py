"""Every collective, type and reduction on memory of the device, against numpy."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ..arithmetic import DTYPES, Array, first_wrong, input_of, reduced
from ..ddl_library import OPS, TYPES, Work
from ..errors import GpuError
from .session import Guarded, Session

_MOST_SHOWN = 20
#: Elements of the buffers that are reduced as one: the smallest, an odd number, many chunks, several buffers.
ALLREDUCE_COUNTS = ((1,), (1003,), (150_001,), (5, 4099, 20_000))
BLOCK_COUNTS = (1, 1003, 20_000)


class Cases:
    """Makes calls, and keeps what was wrong and the bits of what all ranks must have alike."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.rank, self.size = session.ddl.rank, session.ddl.size
        self.number = 0
        self.wrong: list[str] = []
        self.digests: dict[str, str] = {}

    def _compare(self, label: str, got: Array, right: Array, within: Array | float) -> None:
        difference = first_wrong(got, right, within)
        if difference and len(self.wrong) < _MOST_SHOWN:
            self.wrong.append(f"{label}: {difference}")

    def _inputs(self, kind: str, op: str, count: int) -> list[Array]:
        self.number += 1
        return [input_of(kind, op, count, rank, self.number) for rank in range(self.size)]

    def _place(self, values: Array) -> Guarded:
        return Guarded(self.session, values)

    def _call(self, work: Work, places: list[Guarded]) -> list[Array]:
        """Make a call; what its buffers hold then."""
        try:
            self.session.ddl.call(work, self.session.stream.handle)
            contents = [place.read(DTYPES[work.type]) for place in places]
        except GpuError as error:
            raise GpuError(f"{work.name}: {error}") from error
        for place in places:
            place.free()
        return contents

    def _compare_bits(self, label: str, got: Array, right: Array) -> None:
        self._compare(label, got.view(np.uint8), right.view(np.uint8), 0)

    def together(self, collective: str, kind: str, op: str, counts: tuple[int, ...], root: int = 0) -> None:
        """all-reduce, reduce, broadcast: buffers in place, as if they were one."""
        label = f"{collective} {kind} {op} {'+'.join(map(str, counts))}"
        inputs = self._inputs(kind, op, sum(counts))
        cuts = np.cumsum(counts)[:-1]
        places = [self._place(part) for part in np.split(inputs[self.rank], cuts)]
        buffers = [(place.address, count) for place, count in zip(places, counts, strict=True)]
        work = Work(collective, kind, op, buffers, root=root, name=label)
        got = np.concatenate(self._call(work, places))
        if collective == "broadcast":
            self._compare_bits(label, got, inputs[root])
        elif collective == "all-reduce" or self.rank == root:
            self._compare(label, got, *reduced(kind, op, inputs))
        else:
            self._compare_bits(label, got, inputs[self.rank])
        if collective == "all-reduce":
            self.digests[label] = hashlib.sha256(got.tobytes()).hexdigest()[:16]

    def blocks(self, collective: str, kind: str, count: int) -> None:
        """reduce-scatter, all-gather, all-to-all: from one buffer into another."""
        label = f"{collective} {kind} {count}"
        before = count if collective == "all-gather" else count * self.size
        after = count if collective == "reduce-scatter" else count * self.size
        inputs = self._inputs(kind, "sum", before)
        source = self._place(inputs[self.rank])
        target = self._place(np.zeros(after, DTYPES[kind]))
        work = Work(collective, kind, into=source.address, out=target.address, count=count, name=label)
        got, source_after = self._call(work, [target, source])
        share = slice(self.rank * count, (self.rank + 1) * count)
        if collective == "reduce-scatter":
            self._compare(label, got, *reduced(kind, "sum", [values[share] for values in inputs]))
        else:
            parts = inputs if collective == "all-gather" else [values[share] for values in inputs]
            self._compare_bits(label, got, np.concatenate(parts))
        self._compare_bits(f"input of {label}", source_after, inputs[self.rank])


def run(session: Session, settings: dict[str, Any]) -> dict[str, Any]:
    cases = Cases(session)
    last = session.ddl.size - 1
    for kind in TYPES:
        for op in OPS:
            for counts in ALLREDUCE_COUNTS:
                cases.together("all-reduce", kind, op, counts)
            cases.together("reduce", kind, op, ALLREDUCE_COUNTS[1], last)
        for count in BLOCK_COUNTS:
            cases.together("broadcast", kind, "sum", (count,), last)
            for collective in ("reduce-scatter", "all-gather", "all-to-all"):
                cases.blocks(collective, kind, count)
    return {
        "cases": cases.number,
        "wrong": cases.wrong,
        "digests": cases.digests,
        "types": list(TYPES),
        "ops": list(OPS),
        "device": session.ddl.describe()["device"],
        "version": session.ddl.version,
    }
