"""Open MPI, at its defaults and with each fixed all-reduce algorithm of its component `tuned`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..errors import PeerMissing
from ..programs import compiled
from ..sizes import show_size
from ..testbed import Testbed
from .base import Launch, Peer, Setting

# Numbers of coll_tuned_allreduce_algorithm.
RECURSIVE_DOUBLING, RING, SEGMENTED_RING, RABENSEIFNER = 3, 4, 5, 6
DEFAULT_SEGMENTS = (1 << 18,)
_VERSION = re.compile(r"([0-9]+\.[0-9][\w.]*)")


def launcher(
    prefix: Path, testbed: Testbed, options: dict[str, str], program: Sequence[str], file: str
) -> Launch:
    """mpirun of a prefix with one rank after the other on the hosts of the testbed's sequence.

    options: variables of the ranks' environment. file: name of the host file to write into the testbed's
    folder.
    """
    hosts = testbed.folder / file
    hosts.write_text("".join(f"{host}\n" for host in testbed.sequence))
    variables = {**options, **testbed.variables}
    if testbed.crowded:
        variables["OMPI_MCA_mpi_yield_when_idle"] = "1"
    command = [str(prefix / "bin" / "mpirun"), "--hostfile", str(hosts), "--map-by", "seq:OVERSUBSCRIBE"]
    # The timing programs bind themselves, in the same way for every peer; a launcher would do it in its own.
    command += ["--bind-to", "none", "-n", str(len(testbed.sequence))]
    for name in sorted(variables):
        command += ["-x", name]
    return Launch([*command, *program], variables)


def version_of(prefix: Path) -> str:
    """Version of the Open MPI in a prefix."""
    program = prefix / "bin" / "mpirun"
    try:
        done = subprocess.run(
            [str(program), "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerMissing(f"{program}: {error}") from error
    match = _VERSION.search(done.stdout)
    if done.returncode or not match or "Open MPI" not in done.stdout:
        raise PeerMissing(f"{program} --version does not tell an Open MPI: {done.stdout}{done.stderr}")
    return match[1]


class OpenMpi(Peer):
    """MPI_Allreduce of Open MPI. segments: bytes of a segment, each a setting of the segmented ring."""

    name = "openmpi"
    title = "Open MPI"
    segments: tuple[int, ...] = DEFAULT_SEGMENTS

    @classmethod
    def found_in(cls, prefix: Path) -> bool:
        return (prefix / "bin" / "prterun").exists() and (prefix / "bin" / "mpicc").exists()

    @classmethod
    def remedy(cls) -> str:
        return "wmlce env create powerai powerai"

    def version(self) -> str:
        return version_of(self.prefix)

    def prepare(self) -> str:
        return self._program().name

    def _program(self) -> Path:
        return compiled(
            "bench_mpi", self.prefix / "bin" / "mpicc", [], [self.prefix / "lib" / "libmpi.so"], self.cache
        )

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
        program = [str(self._program()), *arguments]
        return launcher(self.prefix, testbed, setting.options, program, "hosts.openmpi")
