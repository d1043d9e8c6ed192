"""NCCL alone, on memory of GPUs: ncclAllReduce of all ranks, which DDL only starts and lets meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..errors import PeerMissing
from ..testbed import Testbed
from .base import Launch, Peer, Setting
from .gpu import facts_of, timing


class Nccl(Peer):
    """ncclAllReduce of the NCCL that DDL would take as well. Every rank needs a GPU of its own."""

    name = "nccl"
    title = "NCCL"
    optional = True
    memories: ClassVar[tuple[str, ...]] = ("cuda",)
    marks: ClassVar[tuple[str, ...]] = ("lib/libddl.so", "bin/mpirun")
    remedy = "wmlce env create powerai powerai-gpu"

    def version(self) -> str:
        facts = facts_of(self.prefix)
        if facts.nccl is None:
            raise PeerMissing(facts.without_nccl)
        return facts.nccl

    def prepare(self) -> str:
        return f"NCCL {self.version()} on {', '.join(facts_of(self.prefix).gpus)}"

    def launch(self, testbed: Testbed, setting: Setting, arguments: Sequence[str]) -> Launch:
        gpus, most = len(facts_of(self.prefix).gpus), max(testbed.scenario.slots)
        if most > gpus:
            raise PeerMissing(f"NCCL needs a GPU for each rank; there are {gpus} for {most} ranks of a host")
        return timing(self.prefix, testbed, self.name, setting.options, arguments)
