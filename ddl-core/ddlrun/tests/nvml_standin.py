"""Machines with GPUs for ddlrun to look at: a folder that stands for /, and NVIDIA's library as
standins/nvml.c plays it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from ddlrun.checks import probe
from ddlrun.checks.inventory import HostInventory, Interface, parse
from fake_machine import VARIABLE, Machine

SOURCE = Path(__file__).parent / "standins/nvml.c"
NAME = "libnvidia-ml.so.1"


@functools.cache
def _library() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / NAME
        words = ["gcc", "-shared", "-fPIC", "-o", str(made), str(SOURCE)]
        subprocess.run(words, check=True, timeout=60)
        return made.read_bytes()


def install(
    machine: Machine, folder: Path, *, library: bool = True, real_processors: bool = False
) -> dict[str, str]:
    """Writes the machine below a folder; the variables that make ddlrun look there. library: NVIDIA's is
    there. real_processors: those of the machine that this runs on, so that ranks can really be bound.
    """
    machine.write(folder)
    if real_processors:
        shutil.rmtree(folder / "sys/devices/system", ignore_errors=True)
        (folder / "sys/devices").mkdir(parents=True, exist_ok=True)
        (folder / "sys/devices/system").symlink_to("/sys/devices/system")
    paths = [path for path in [os.environ.get("LD_LIBRARY_PATH")] if path]
    if library:
        place = folder / "lib"
        place.mkdir()
        (place / NAME).write_bytes(_library())
        (place / "nvml.txt").write_text(machine.nvml())
        paths.insert(0, str(place))
    return {VARIABLE: str(folder), "LD_LIBRARY_PATH": ":".join(paths)}


class Look:
    """What ddlrun finds on machines, as the fixture `look_at` gives it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch = folder, patch

    def __call__(
        self, kind: Machine, name: str = "a", visible: str | None = None, **how: bool
    ) -> HostInventory:
        """visible: CUDA_VISIBLE_DEVICES. how: as for install()."""
        with self._patch.context() as patch:
            patch.delenv("LD_LIBRARY_PATH", raising=False)
            for variable, value in install(kind, self._folder / f"machine-{name}", **how).items():
                patch.setenv(variable, value)
            patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
            if visible is not None:
                patch.setenv("CUDA_VISIBLE_DEVICES", visible)
            told = probe.facts("/nowhere", "/nowhere/ddl", "/nowhere/mpirun")
        facts = parse({**told, "cpu": "a processor"})
        return replace(facts, name=name, interface=Interface("ib0", 200000, 4092), fabrics=())
