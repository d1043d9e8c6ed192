"""oneCCL on host memory, as its wheels bring it: over Intel MPI, started by its launcher."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from ..errors import PeerMissing
from ..programs import compiled_cpp
from ..testbed import Testbed
from .base import CompiledPeer, Launch, Setting
from .mpich import hydra

_VERSION = re.compile(r"^oneccl_cpu-([0-9.]+)\.dist-info$")


class OneCcl(CompiledPeer):
    """ccl::allreduce. compiled_by: prefix of the MPICH whose header and compiler wrappers are used: the
    wheels hold the library of Intel MPI alone, which has the same binary interface."""

    name = "oneccl"
    title = "oneCCL"
    optional = True
    marks: ClassVar[tuple[str, ...]] = ("lib/libccl.so.1", "include/oneapi/ccl.hpp")
    # later wheels of the CPU build need a libccl.so.2 that only those for GPUs hold
    remedy = "pip install --prefix DIR oneccl-cpu-devel==2021.15.2"
    compiled_by: Path | None = None

    def version(self) -> str:
        folders = self.prefix.glob("lib/python3*/site-packages/oneccl_cpu-*.dist-info")
        versions = [match[1] for folder in folders if (match := _VERSION.match(folder.name))]
        return versions[0] if versions else "of unknown version"

    def program(self) -> Path:
        if self.compiled_by is None:
            raise PeerMissing("its timing program is compiled with the header of MPICH, which was not found")
        library = self.prefix / "lib"
        if not (library / "libmpi.so.12").exists():
            raise PeerMissing(f"{library / 'libmpi.so.12'}: no such file; it comes with the package impi-rt")
        options = [f"-I{self.prefix / 'include'}", f"-L{library}", "-lccl", f"-Wl,-rpath,{library}"]
        wrappers = (self.compiled_by / "bin" / "mpicc", self.compiled_by / "bin" / "mpicxx")
        return compiled_cpp("bench_oneccl", wrappers, options, [library / "libccl.so.1"], self.cache)

    def settings(self, testbed: Testbed) -> list[Setting]:
        library = str(self.prefix / "lib")
        base = {
            "LD_LIBRARY_PATH": library,
            "FI_PROVIDER_PATH": library,
            "I_MPI_ROOT": str(self.prefix),
            # the timing program binds the ranks, or nobody does
            "I_MPI_PIN": "0",
            "CCL_ATL_TRANSPORT": "mpi",
            "CCL_LOG_LEVEL": "error",
        }
        yielding = {"I_MPI_THREAD_YIELD": "2", "CCL_YIELD": "sched_yield"}
        if testbed.crowded:
            base |= yielding
        settings = [Setting("defaults", base)]
        if not testbed.crowded:
            settings.append(Setting("yielding", {**base, **yielding}))
        for name in ("direct", "ring", "Rabenseifner", "recursive doubling"):
            algorithm = name.lower().replace(" ", "_")
            settings.append(Setting(name, {**base, "CCL_ALLREDUCE": algorithm}))
        return settings

    def launch(self, testbed: Testbed, setting: Setting, arguments: Sequence[str]) -> Launch:
        command = hydra(self.prefix, testbed, setting.options, [str(self.program()), *arguments]).command
        # the launcher finds its own parts by these
        return Launch(command, {name: setting.options[name] for name in ("I_MPI_ROOT", "LD_LIBRARY_PATH")})

    def folders(self) -> list[Path]:
        return [*super().folders(), *([self.compiled_by] if self.compiled_by else [])]
