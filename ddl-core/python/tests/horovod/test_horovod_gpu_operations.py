"""DDL's operations for Horovod on memory of a device, on stand-ins for CUDA and NCCL, with a small host."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rank_processes import ROOT

BINDING = ROOT / "ddl-core/python/bindings/horovod"
HOST = Path(__file__).parent / "host"
STAND_INS = Path(os.environ.get("DDL_TEST_STAND_INS") or ROOT / "build/ddl-core/libddl/tests/cuda/stand-ins")
#: Horovod's headers that the operations include.
HEADERS = ("ops/collective_operations.h", "ops/gpu_operations.h", "mpi/mpi_context.h", "logging.h")


@pytest.fixture(scope="module")
def program(horovod_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("no g++: apt-get install g++")
    if not (STAND_INS / "libcuda.so.1").exists():
        pytest.skip(f"no stand-ins for CUDA in {STAND_INS}: ci/test ddl-core builds them")
    common = tmp_path_factory.mktemp("horovod") / "common"
    for header in HEADERS:
        (common / header).parent.mkdir(parents=True, exist_ok=True)
        (common / header).write_text('#include "host.hpp"\n')
    for file in [*BINDING.glob("ddl_calls.*"), *BINDING.glob("ddl_gpu_operations.*")]:
        shutil.copy(file, common / "ops")
    target, library = common / "program", horovod_prefix / "lib"
    words = ["g++", "-std=c++20", "-O1", "-Wall", "-Werror", "-static-libstdc++", "-static-libgcc"]
    for folder in (ROOT / "ddl-core/libddl/include", ROOT / "ddl-core/libddl/src", HOST, common):
        words.append(f"-I{folder}")
    words += ["-isystem", str(horovod_prefix / "include"), *map(str, sorted(common.glob("ops/*.cc")))]
    words += [str(HOST / "gpu_program.cpp"), "-o", str(target), f"-L{library}", f"-L{STAND_INS}"]
    words += [f"-Wl,-rpath,{library}", f"-Wl,-rpath-link,{library}", "-l:libddl.so.2", "-lmpi"]
    run = subprocess.run([*words, "-l:libcuda.so.1"], capture_output=True, text=True, timeout=400)
    assert run.returncode == 0, run.stderr[-3000:]
    return target


@pytest.mark.parametrize("way", ["staged", "ipc", "nccl"])
def test_operations(jobs: Any, program: Path, way: str) -> None:
    """By ranks that share a GPU, without and with CUDA IPC, and by ranks with one each, so by NCCL."""
    words = ["mpirun", "-n", "2", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", str(program)]
    settings = {"STAND_IN_DEVICES": "2" if way == "nccl" else "1", "STAND_IN_PATIENCE_S": "60"}
    settings |= {"DDL_NVRTC_LIBRARY": "none"} if way == "staged" else {}
    job = jobs.tool(words, LD_LIBRARY_PATH=str(STAND_INS), **settings, DDL_OPTIONS="-dbg_level 1")
    assert job.status == 0, job.out + job.err
    assert job.passed("all") == 2
    said = {"staged": "are staged in the host's memory", "ipc": "by CUDA IPC"}
    assert {other for other, text in said.items() if text in job.err} == {way} - {"nccl"}, job.err
