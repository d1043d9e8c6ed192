"""Horovod's own backend of DDL for GPUs, which the channel does not build, still compiles against ddl.hpp."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from rank_processes import ROOT

RECIPE = ROOT / "recipes/horovod-compiled"
SOURCES = ("ops/ddl_operations.cc", "mpi/ddl_mpi_context_manager.cc", "operations.cc")
MACROS = ("HAVE_CUDA=1", "HAVE_GPU=1", "HAVE_MPI=1", "HAVE_DDL=1", f"HOROVOD_GPU_ALLREDUCE={ord('D')}")


@pytest.fixture(scope="module")
def cuda_headers() -> Path:
    homes = [os.environ.get("CUDA_HOME") or "/usr/local/cuda", *sorted(Path("/usr/local").glob("cuda-*"))]
    for home in homes:
        if (Path(home) / "include/cuda_runtime.h").exists():
            return Path(home) / "include"
    pytest.skip("no header cuda_runtime.h of CUDA: set CUDA_HOME, or install the CUDA toolkit")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Horovod's source as it is released."""
    wmlce = ROOT / "build/tools/bin/wmlce"
    words = [wmlce, "--root", ROOT, "source", "fetch", "horovod-compiled"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=600)
    if run.returncode:
        pytest.skip(f"no source of Horovod: wmlce source fetch horovod-compiled: {run.stderr.strip()[-300:]}")
    folder = tmp_path_factory.mktemp("horovod")
    [archive] = (ROOT / "build/sources").glob("horovod-*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    [tree] = folder.iterdir()
    return tree


def compiled(tree: Path, name: str, cuda: Path, prefix: Path) -> subprocess.CompletedProcess[str]:
    folders = [cuda, prefix / "include", *sorted((tree / "third_party/boost").glob("*/include"))]
    more = ("HTTPRequest/include", "lbfgs/include", "eigen", "flatbuffers/include")
    folders += [tree / "third_party" / folder for folder in more]
    words = ["g++", "-std=c++17", "-fsyntax-only", "-w", *(f"-D{macro}" for macro in MACROS)]
    words += [word for folder in folders for word in ("-isystem", str(folder))]
    file = str(tree / "horovod/common" / name)
    return subprocess.run([*words, file], capture_output=True, text=True, timeout=300)


@pytest.mark.long
def test_it_compiles_with_the_patch_alone(source: Path, cuda_headers: Path, horovod_prefix: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++: apt-get install g++")
    before = compiled(source, SOURCES[0], cuda_headers, horovod_prefix)
    assert before.returncode != 0 and "WaitForEvents" in before.stderr
    patch = (RECIPE / "patches/ddl-gpu-events.patch").read_text()
    subprocess.run(["patch", "-p1"], input=patch, text=True, cwd=source, check=True, capture_output=True)
    for name in SOURCES:
        run = compiled(source, name, cuda_headers, horovod_prefix)
        assert run.returncode == 0, f"{name}: {run.stderr[-3000:]}"
