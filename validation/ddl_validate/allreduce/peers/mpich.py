"""MPICH, at its defaults, over its second network layer, and with fixed all-reduce algorithms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from ..errors import PeerMissing
from ..programs import compiled
from ..testbed import Testbed
from .base import CompiledPeer, Launch, Setting, run_tool

_VERSION = re.compile(r"^MPICH Version:\s*(\S+)", re.MULTILINE)


def hydra(prefix: Path, testbed: Testbed, options: dict[str, str], program: Sequence[str]) -> Launch:
    """mpiexec.hydra of a prefix with one rank after the other on the hosts of the testbed's sequence.

    options: variables of the ranks' environment.
    """
    command = [str(prefix / "bin" / "mpiexec.hydra"), "-f", str(testbed.hostfile())]
    command += ["-n", str(len(testbed.sequence))]
    for name, value in {**options, **testbed.variables}.items():
        command += ["-genv", name, value]
    return Launch([*command, *program])


class Mpich(CompiledPeer):
    """MPI_Allreduce of MPICH, started by its own launcher Hydra."""

    name = "mpich"
    title = "MPICH"
    marks: ClassVar[tuple[str, ...]] = ("bin/mpichversion",)
    remedy = "wmlce env create peers-mpich mpich"

    def version(self) -> str:
        program = self.prefix / "bin" / "mpichversion"
        done = run_tool(program)
        match = _VERSION.search(done.stdout)
        if done.returncode or not match:
            raise PeerMissing(f"{program} does not tell its version: {done.stdout}{done.stderr}")
        return match[1]

    def program(self) -> Path:
        library = self.prefix / "lib" / "libmpi.so.12"
        return compiled("bench_mpi", self.prefix / "bin" / "mpicc", [], [library], self.cache)

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
        order = hydra(self.prefix, testbed, setting.options, [str(self.program()), *arguments])
        first, *others = order.command
        return Launch([first, "-bind-to", "none", *others])
