"""What is compiled with headers of CUDA and NCCL: out of NVIDIA's wheels by `wmlce source headers`,
without the libraries, and without CUDA's compiler. Nothing here runs on a GPU.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from scratch_clone import CI
from tree import ROOT
from wmlce.recipes.recipe_set import load_source_lock
from wmlce.recipes.variant import find
from wmlce.recipes.wheel_lock import read_wheel_lock
from wmlce.util.layout import Layout

RECIPE = ROOT / "recipes/cuda12/horovod-compiled"
LAYOUT = Layout.locate(ROOT)
NCCL = ord("N")
MACROS = ["HAVE_CUDA=1", "HAVE_GPU=1", "HAVE_MPI=1", "HAVE_NCCL=1"]
MACROS += [
    f"HOROVOD_GPU_{kind}={NCCL}"
    for kind in ("ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER")
]
HEADERS = ("boost/*/include", "HTTPRequest/include", "eigen", "flatbuffers/include", "lbfgs/include")

INCLUDE = re.compile(r"^#include <(?:ATen|c10|pybind11|torch)/[^>]+>$", re.MULTILINE)

# Horovod's files about GPUs, together as its build compiles them
UNITY = "".join(
    f'#include "horovod/common/ops/{name}.cc"\n'
    for name in (
        "cuda_operations",
        "gpu_operations",
        "nccl_operations",
        "mpi_gpu_operations",
        "cuda/cuda_kernels",
    )
)

VERSIONS = """
#include <cuda.h>
#include <cuda_runtime.h>
#include <nccl.h>
static_assert(CUDA_VERSION == @CUDA@, "cuda.h");
static_assert(CUDART_VERSION == CUDA_VERSION, "cuda_runtime.h");
static_assert(NCCL_VERSION_CODE == @NCCL@, "nccl.h");
static_assert(sizeof(CUipcMemHandle) == sizeof(cudaIpcMemHandle_t), "the driver's and the runtime's");
ncclResult_t (*function)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) =
    ncclAllReduce;
"""


def compiler() -> str:
    found = shutil.which("g++")
    if found is None:
        pytest.fail("no g++: ci/debian-packages.txt names it")
    return found


@pytest.fixture(scope="module")
def folders() -> list[Path]:
    """What a compiler gets to know CUDA and NCCL by, as any test may ask for it."""
    words = [sys.executable, "-m", "wmlce", "--root", str(ROOT), "--json", "source", "headers"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CI), *sys.path])}
    run = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment)
    assert run.returncode == 0, run.stderr
    return [Path(folder) for folder in json.loads(run.stdout)["include"]]


@pytest.fixture(scope="module")
def horovod(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Horovod's source, with the files of this project that are compiled in it."""
    lock = load_source_lock(LAYOUT)
    [archive] = [item for name, item in lock.by_file.items() if name.startswith("horovod-")]
    lock.fetch([archive], lambda _: None)
    folder = tmp_path_factory.mktemp("horovod")
    with tarfile.open(lock.checked(archive)) as files:
        files.extractall(folder, filter="data")
    [tree] = folder.iterdir()
    place = tree / "horovod/common/ops/cuda"
    shutil.copy(RECIPE / "cuda_kernels.cc", place)
    (place / "kernels.inc").write_text(f'R"cuda({(RECIPE / "kernels.cu").read_text()})cuda"\n')
    (tree / "gpu_unity.cc").write_text(UNITY)
    return tree


def environment() -> Path:
    """The environment under test, for the headers of MPI and Python."""
    prefix = Path(os.environ.get("DDL_TEST_PREFIX") or ROOT / "build/envs/powerai")
    if not (prefix / "include/mpi.h").is_file():
        pytest.fail(f"no mpi.h in {prefix}/include; run ci/quickstart, or set DDL_TEST_PREFIX")
    return prefix


def isystem(folders: list[Path]) -> list[str]:
    return [word for folder in folders for word in ("-isystem", str(folder))]


def check_syntax(file: Path, folders: list[Path], *more: str) -> subprocess.CompletedProcess[str]:
    words = [compiler(), "-std=c++17", "-fsyntax-only", *more, *isystem(folders), str(file)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300)


def test_headers_are_those_of_the_locked_versions(folders: list[Path], tmp_path: Path) -> None:
    versions = {
        wheel.name: wheel.version for wheel in read_wheel_lock(LAYOUT, find(LAYOUT, "cuda12")).packages
    }
    major, minor = versions["nvidia-cuda-runtime-cu12"].split(".")[:2]
    nccl = [int(part) for part in versions["nvidia-nccl-cu12"].split(".")]
    text = VERSIONS.replace("@CUDA@", str(int(major) * 1000 + int(minor) * 10))
    file = tmp_path / "versions.cc"
    file.write_text(text.replace("@NCCL@", str(nccl[0] * 10000 + nccl[1] * 100 + nccl[2])))
    run = check_syntax(file, folders, "-Wall", "-Wextra", "-Werror")
    assert run.returncode == 0, run.stderr[-3000:]
    file.write_text(text.replace("@NCCL@", "1"))
    assert check_syntax(file, folders).returncode != 0


@pytest.mark.slow
def test_horovods_operations_on_gpus_compile(folders: list[Path], horovod: Path) -> None:
    """Those of CUDA, NCCL and MPI, with the kernels of this project in place of those that need nvcc. All
    of Horovod is compiled where the variant is built.
    """
    prefix = environment()
    third = [folder for pattern in HEADERS for folder in sorted((horovod / "third_party").glob(pattern))]
    everything = [*folders, prefix / "include", *third]
    run = check_syntax(
        horovod / "gpu_unity.cc", everything, "-w", f"-I{horovod}", *(f"-D{m}" for m in MACROS)
    )
    assert run.returncode == 0, run.stderr[-3000:]


@pytest.mark.slow
def test_bindings_compile_with_the_variants_pytorch(folders: list[Path], tmp_path: Path) -> None:
    """DDL's backend for PyTorch, with the headers of the build for CUDA: another release than the channel's.
    TensorFlow's is the same release, with which the channel itself compiles the operators.
    """
    sources = sorted((ROOT / "ddl-core/python/bindings/torch").glob("*.cpp"))
    assert len(sources) > 5
    [torch] = [folder for folder in folders if folder.parent.name == "torch"]
    prefix = environment()
    python = next((prefix / "include").glob("python3.*"))
    more = [torch / "torch/csrc/api/include", python, ROOT / "ddl-core/libddl/include", prefix / "include"]
    defines = ["-DTORCH_EXTENSION_NAME=_backend", "-D_GLIBCXX_USE_CXX11_ABI=1", '-DDDL_TORCH_VERSION=""']
    # PyTorch's headers are what takes the time: read once, for all
    lines = {line for file in sources for line in INCLUDE.findall(file.read_text())}
    header = tmp_path / "torch.hpp"
    header.write_text("\n".join(sorted(lines)) + "\n")
    options = [*defines, "-w", "-std=c++20", *isystem([*folders, *more])]
    made = [compiler(), *options, "-x", "c++-header", str(header), "-o", f"{header}.gch"]
    run = subprocess.run(made, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    words = [compiler(), *options, "-fsyntax-only", "-include", str(header), *map(str, sources)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stderr[-3000:]
    text = (torch / "torch/headeronly/version.h").read_text()
    found = [re.search(rf"define TORCH_VERSION_{part} (\d+)", text) for part in ("MAJOR", "MINOR")]
    locked = {wheel.name: wheel.version for wheel in read_wheel_lock(LAYOUT, find(LAYOUT, "cuda12")).packages}
    assert locked["torch"].split(".")[:2] == [match and match[1] for match in found]


def test_kernels_compute_what_horovod_does(tmp_path: Path) -> None:
    """On an emulation of a GPU: copies and products of every type, with tails and odd addresses."""
    program = tmp_path / "emulation"
    source = ROOT / "ci/tests/gpu_emulation.cpp"
    words = [compiler(), "-std=c++17", "-O1", f"-I{RECIPE}", str(source), "-o", str(program)]
    built = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr[-3000:]
    run = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (0, "right\n"), run.stdout
