"""Open MPI, at its defaults and with each fixed all-reduce algorithm of its component `tuned`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from ..errors import PeerMissing
from ..programs import compiled
from ..sizes import show_size
from ..testbed import Testbed
from .base import CompiledPeer, Launch, Setting, run_tool

# Numbers of coll_tuned_allreduce_algorithm.
RECURSIVE_DOUBLING, RING, SEGMENTED_RING, RABENSEIFNER = 3, 4, 5, 6
DEFAULT_SEGMENTS = (1 << 18,)
_VERSION = re.compile(r"([0-9]+\.[0-9][\w.]*)")


def launcher(prefix: Path, testbed: Testbed, options: dict[str, str], program: Sequence[str]) -> Launch:
    """mpirun of a prefix with one rank after the other on the hosts of the testbed's sequence.

    options: variables of the ranks' environment.
    """
    variables = {**options, **testbed.variables}
    if testbed.crowded:
        variables["OMPI_MCA_mpi_yield_when_idle"] = "1"
    command = [str(prefix / "bin" / "mpirun"), "--hostfile", str(testbed.hostfile())]
    command += ["--map-by", "seq:OVERSUBSCRIBE"]
    # The timing programs bind themselves, in the same way for every peer; a launcher would do it in its own.
    command += ["--bind-to", "none", "-n", str(len(testbed.sequence))]
    for name in sorted(variables):
        command += ["-x", name]
    return Launch([*command, *program], variables)


class OpenMpi(CompiledPeer):
    """MPI_Allreduce of Open MPI. segments: bytes of a segment, each a setting of the segmented ring."""

    name = "openmpi"
    title = "Open MPI"
    marks: ClassVar[tuple[str, ...]] = ("bin/prterun", "bin/mpicc")
    remedy = "wmlce env create powerai powerai"
    segments: tuple[int, ...] = DEFAULT_SEGMENTS

    def version(self) -> str:
        program = self.prefix / "bin" / "mpirun"
        done = run_tool(program, "--version")
        match = _VERSION.search(done.stdout)
        if done.returncode or not match or "Open MPI" not in done.stdout:
            raise PeerMissing(f"{program} --version does not tell an Open MPI: {done.stdout}{done.stderr}")
        return match[1]

    def program(self) -> Path:
        library = self.prefix / "lib" / "libmpi.so"
        return compiled("bench_mpi", self.prefix / "bin" / "mpicc", [], [library], self.cache)

    def settings(self, testbed: Testbed) -> list[Setting]:
        settings = [Setting("defaults")]
        if testbed.spans_hosts:
            # HAN works between hosts alone, and there it is the default of Open MPI 5 already for some sizes
            settings += [
                Setting("HAN", {"OMPI_MCA_coll_han_priority": "100"}),
                Setting("tuned", {"OMPI_MCA_coll": "^han"}),
            ]
        if not testbed.crowded:
            # defaults never yield, which costs whole time slices as soon as a core has anything else to do
            settings.append(Setting("yielding", {"OMPI_MCA_mpi_yield_when_idle": "1"}))
        settings.append(self._fixed("ring", RING))
        settings += [
            self._fixed(f"ring in segments of {show_size(s)}", SEGMENTED_RING, s) for s in self.segments
        ]
        settings.append(self._fixed("Rabenseifner", RABENSEIFNER))
        settings.append(self._fixed("recursive doubling", RECURSIVE_DOUBLING))
        return settings

    @staticmethod
    def _fixed(name: str, algorithm: int, segment: int | None = None) -> Setting:
        options = {
            "OMPI_MCA_coll": "^han",
            "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
            "OMPI_MCA_coll_tuned_allreduce_algorithm": str(algorithm),
        }
        if segment is not None:
            options["OMPI_MCA_coll_tuned_allreduce_algorithm_segmentsize"] = str(segment)
        return Setting(name, options)

    def launch(self, testbed: Testbed, setting: Setting, arguments: Sequence[str]) -> Launch:
        return launcher(self.prefix, testbed, setting.options, [str(self.program()), *arguments])
