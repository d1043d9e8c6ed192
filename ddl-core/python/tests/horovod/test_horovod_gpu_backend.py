"""Horovod's operations by DDL on tensors of GPUs compile against NVIDIA's headers.

They have not been run on a GPU.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from rank_processes import ROOT

RECIPE = ROOT / "recipes/horovod-compiled"
BINDING = ROOT / "ddl-core/python/bindings/horovod"
SOURCES = ("ops/ddl_calls.cc", "ops/ddl_gpu_operations.cc", "operations.cc")
OPERATIONS = ("ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER")
MACROS = (
    *("HAVE_CUDA=1", "HAVE_GPU=1", "HAVE_MPI=1", "HAVE_NCCL=1"),
    *(f"HOROVOD_GPU_{name}={ord('N')}" for name in OPERATIONS),
)


def wmlce(*words: str) -> str:
    """What a command of this clone's wmlce prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "ci"), *sys.path])}
    command = [sys.executable, "-m", "wmlce", "--root", str(ROOT), *words]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def nvidia() -> list[str]:
    return list(json.loads(wmlce("--json", "source", "headers"))["include"])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Horovod's source, with DDL's operations."""
    wmlce("source", "fetch", "horovod-compiled")
    folder = tmp_path_factory.mktemp("horovod")
    [archive] = (ROOT / "build/sources").glob("horovod-*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    [tree] = folder.iterdir()
    patch = (RECIPE / "patches/ddl.patch").read_text()
    subprocess.run(["patch", "-p1"], input=patch, text=True, cwd=tree, check=True, capture_output=True)
    for file in BINDING.iterdir():
        shutil.copy(file, tree / "horovod/common/ops")
    return tree


def compiled(
    tree: Path, name: str, nvidia: list[str], prefix: Path, macros: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    more = ("HTTPRequest/include", "lbfgs/include", "eigen", "flatbuffers/include")
    folders = [*nvidia, prefix / "include", *sorted((tree / "third_party/boost").glob("*/include"))]
    folders += [ROOT / "ddl-core/libddl/include", *(tree / "third_party" / folder for folder in more)]
    words = ["g++", "-std=c++17", "-fsyntax-only", "-w", *(f"-D{macro}" for macro in macros)]
    words += [word for folder in folders for word in ("-isystem", str(folder))]
    file = str(tree / "horovod/common" / name)
    return subprocess.run([*words, file], capture_output=True, text=True, timeout=300)


@pytest.mark.long
def test_it_compiles(source: Path, nvidia: list[str], horovod_prefix: Path) -> None:
    for name in SOURCES:
        run = compiled(source, name, nvidia, horovod_prefix, MACROS)
        assert run.returncode == 0, f"{name}: {run.stderr[-3000:]}"
    # and that was compiled which is meant
    file = source / "horovod/common/operations.cc"
    file.write_text(file.read_text().replace("DDLGPUBroadcast>(&ddl_process,", "DDLGPUBroadcast>(7,"))
    run = compiled(source, SOURCES[2], nvidia, horovod_prefix, MACROS)
    assert run.returncode != 0 and "DDLGPUBroadcast" in run.stderr
