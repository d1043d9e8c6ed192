"""Gloo, as torch.distributed uses it. Open MPI's launcher starts its ranks; they exchange nothing by MPI."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from ..errors import PeerMissing
from ..programs import PACKAGE, SOURCES
from ..testbed import Testbed
from .base import Launch, Peer, Setting
from .openmpi import launcher

_VERSION = re.compile(r"^__version__\s*=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)
_VERSION_FILE = "lib/python3*/site-packages/torch/version.py"


class Gloo(Peer):
    """torch.distributed.all_reduce with the backend gloo. started_by: prefix of the Open MPI whose mpirun is
    used."""

    name = "gloo"
    title = "Gloo"
    marks: ClassVar[tuple[str, ...]] = (_VERSION_FILE,)
    remedy = "wmlce env create peers-gloo pytorch"
    started_by: Path | None = None

    def version(self) -> str:
        file = min(self.prefix.glob(_VERSION_FILE), default=None)
        match = _VERSION.search(file.read_text()) if file else None
        if not match:
            raise PeerMissing(f"{self.prefix}: its Python has no torch")
        return f"of torch {match[1]}"

    def prepare(self) -> str:
        if self.started_by is None:
            raise PeerMissing("its ranks are started by Open MPI's mpirun, which was not found")
        if not (self.prefix / "bin" / "python").exists():
            raise PeerMissing(f"{self.prefix / 'bin' / 'python'}: no such file")
        return f"{self.version()} in {self.prefix}, started by {self.started_by}"

    def settings(self, testbed: Testbed) -> list[Setting]:
        # one thread: the hosts share the cores, and more threads would only take them from each other
        options = {"OMP_NUM_THREADS": "1"}
        if testbed.interface:
            options["GLOO_SOCKET_IFNAME"] = testbed.interface
        return [Setting("defaults", options)]

    def launch(self, testbed: Testbed, setting: Setting, arguments: Sequence[str]) -> Launch:
        assert self.started_by is not None, "prepare() comes first"
        first = testbed.sequence[0]
        rendezvous = {
            "MASTER_ADDR": "127.0.0.1" if first == "localhost" else first,
            # below the range from which systems give ports to connections
            "MASTER_PORT": str(random.randrange(20000, 32000)),
        }
        program = [str(self.prefix / "bin" / "python"), str(SOURCES / "bench_gloo.py"), *arguments]
        return launcher(self.started_by, testbed, {**setting.options, **rendezvous}, program)

    def folders(self) -> list[Path]:
        return [*super().folders(), *([self.started_by] if self.started_by else []), PACKAGE]
