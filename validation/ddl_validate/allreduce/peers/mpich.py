"""MPICH, at its defaults, over its second network layer, and with fixed all-reduce algorithms."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..errors import PeerMissing
from ..programs import compiled
from ..testbed import Testbed
from .base import Launch, Peer, Setting

_VERSION = re.compile(r"^MPICH Version:\s*(\S+)", re.MULTILINE)


def hydra(
    prefix: Path, testbed: Testbed, options: dict[str, str], program: Sequence[str], file: str
) -> Launch:
    """mpiexec.hydra of a prefix with one rank after the other on the hosts of the testbed's sequence.

    options: variables of the ranks' environment. file: name of the host file to write into the testbed's
    folder.
    """
    hosts = testbed.folder / file
    hosts.write_text("".join(f"{host}\n" for host in testbed.sequence))
    command = [str(prefix / "bin" / "mpiexec.hydra"), "-f", str(hosts), "-n", str(len(testbed.sequence))]
    for name, value in {**options, **testbed.variables}.items():
        command += ["-genv", name, value]
    return Launch([*command, *program])


class Mpich(Peer):
    """MPI_Allreduce of MPICH, started by its own launcher Hydra."""

    name = "mpich"
    title = "MPICH"

    @classmethod
    def found_in(cls, prefix: Path) -> bool:
        return (prefix / "bin" / "mpichversion").exists()

    @classmethod
    def remedy(cls) -> str:
        return "wmlce env create peers-mpich mpich"

    def version(self) -> str:
        program = self.prefix / "bin" / "mpichversion"
        try:
            done = subprocess.run([str(program)], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PeerMissing(f"{program}: {error}") from error
        match = _VERSION.search(done.stdout)
        if done.returncode or not match:
            raise PeerMissing(f"{program} does not tell its version: {done.stdout}{done.stderr}")
        return match[1]

    def prepare(self) -> str:
        return self._program().name

    def _program(self) -> Path:
        return compiled(
            "bench_mpi", self.prefix / "bin" / "mpicc", [], [self.prefix / "lib" / "libmpi.so.12"], self.cache
        )

    def settings(self, testbed: Testbed) -> list[Setting]:
        settings = [Setting("defaults")]
        # with more ranks than cores, ranks that wait may otherwise keep those that work from working
        waiting = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
        crowd = waiting if testbed.crowded else {}
        settings.append(Setting("yielding", waiting))
        if testbed.spans_hosts:
            settings.append(Setting("over libfabric", {"MPIR_CVAR_CH4_NETMOD": "ofi", **crowd}))
        else:
            # through buffers that all ranks share, from the first call on
            shared = {
                "MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM": "release_gather",
                "MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD": "0",
            }
            settings.append(Setting("release and gather", {**shared, **crowd}))
        for name, algorithm in (
            ("ring", "ring"),
            ("Rabenseifner", "reduce_scatter_allgather"),
            ("recursive doubling", "recursive_doubling"),
        ):
            # without the first, MPICH composes an algorithm of its own where hosts have several ranks
            fixed = {
                "MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE": "0",
                "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": algorithm,
            }
            settings.append(Setting(name, {**fixed, **crowd}))
        return settings

    def launch(self, testbed: Testbed, setting: Setting, arguments: Sequence[str]) -> Launch:
        program = [str(self._program()), *arguments]
        order = hydra(self.prefix, testbed, setting.options, program, "hosts.mpich")
        first, *others = order.command
        return Launch([first, "-bind-to", "none", *others])
