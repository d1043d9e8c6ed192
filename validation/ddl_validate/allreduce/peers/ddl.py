"""DDL, with a description of the scenario's racks or without one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from ..errors import PeerMissing
from ..programs import compiled
from ..testbed import Testbed
from .base import CompiledPeer, Launch, Setting
from .gpu import facts_of, timing
from .openmpi import launcher

# Largest error of one encoding (docs/reference/wire-formats.md): of the element, or of the largest of 256.
_ENCODING_ERROR = {"bf16": 2**-8, "fp16": 2**-11, "q8": (1 + 2**-14) / 254}
# The largest value that a rank has in programs/timing.c.
_LARGEST = 1023
_VERSION = re.compile(r"libddl\.so\.(\d+\.\d+\.\d+)$")


class Ddl(CompiledPeer):
    """ddl_allreduce of libddl.so.

    options: added to DDL_OPTIONS
    describe_racks: whether it gets the topology, which no other peer does
    wire: its wire format; sums may then be off by as much as the format allows
    """

    name = "ddl"
    title = "DDL"
    memories: ClassVar[tuple[str, ...]] = ("host", "cuda")
    marks: ClassVar[tuple[str, ...]] = ("lib/libddl.so", "include/ddl.h")
    remedy = "wmlce env create powerai powerai"
    options: str = ""
    describe_racks: bool = True

    def version(self) -> str:
        library = self.prefix / "lib" / "libddl.so"
        match = _VERSION.search(str(library.resolve()))
        if not match:
            raise PeerMissing(f"{library}: not a link to libddl.so.X.Y.Z")
        return match[1]

    def prepare(self) -> str:
        if self.memory == "cuda":
            facts = facts_of(self.prefix)
            return f"DDL {self.version()}, NCCL {facts.nccl}, on {', '.join(facts.gpus)}"
        return super().prepare()

    def program(self) -> Path:
        """The timing program, compiled at first use."""
        library = self.prefix / "lib"
        options = [f"-I{self.prefix / 'include'}", f"-L{library}", "-lddl", f"-Wl,-rpath,{library}"]
        depends = [library / "libddl.so", self.prefix / "include" / "ddl.h"]
        return compiled("bench_ddl", self.prefix / "bin" / "mpicc", options, depends, self.cache)

    def settings(self, testbed: Testbed) -> list[Setting]:
        scenario = testbed.scenario
        if scenario.racks == 1 or not self.describe_racks:
            # one rack needs no description
            return [Setting("defaults", self._variables(""))]
        file = testbed.folder / "topology.json"
        file.write_text(json.dumps(scenario.topology(), indent=1))
        sizes = scenario.dimensions()
        mode = f"-mode p:{'x'.join(map(str, sizes))}" if sizes else ""
        return [
            Setting(
                "defaults",
                self._variables(f"-topology {file}"),
                # older releases are told racks by -mode alone, and only where all are alike
                instead=Setting("defaults", self._variables(mode)),
                refusal=("unknown option", "-topology"),
            )
        ]

    def _variables(self, options: str) -> dict[str, str]:
        wire = f"-wire {self.wire}" if self.wire != "full" else ""
        joined = " ".join(filter(None, [options, wire, self.options]))
        return {"DDL_OPTIONS": joined} if joined else {}

    def launch(self, testbed: Testbed, setting: Setting, arguments: Sequence[str]) -> Launch:
        if self.memory == "cuda":
            return timing(self.prefix, testbed, self.name, setting.options, arguments)
        program = [str(self.program()), *arguments, *self._tolerances(testbed)]
        return launcher(self.prefix, testbed, setting.options, program)

    def _tolerances(self, testbed: Testbed) -> list[str]:
        """How far a sum may be off: RELATIVE to it, and ABSOLUTE; nothing where it is exact.

        The bound of docs/reference/wire-formats.md for a ring of all hosts, in which partial sums are
        encoded most often.
        """
        if self.wire == "full":
            return []
        hosts, ranks = len(testbed.scenario.slots), testbed.scenario.ranks
        relative = (1 + _ENCODING_ERROR[self.wire]) ** hosts - 1 + (ranks - 1) * 2**-24
        if self.wire == "q8":
            return ["0", f"{relative * ranks * _LARGEST:.6g}"]
        return [f"{relative:.6g}", "0"]
