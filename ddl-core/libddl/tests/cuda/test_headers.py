"""DDL's own declarations of CUDA's driver, NCCL and NVRTC are NVIDIA's: values, layouts and parameters."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
SOURCES = ROOT / "ddl-core/libddl/src"
# One declaration of each kind, made wrong, and the text of the compiler's error that tells of it.
WRONG = [
    (
        "driver_functions.hpp",
        "(DeviceHandle * device, int ordinal)",
        "(DeviceHandle * device, long ordinal)",
        "cuDeviceGet",
    ),
    ("driver_functions.hpp", "kNotReady = 600", "kNotReady = 601", "kNotReady"),
    ("driver_functions.hpp", "char bytes[16]", "char bytes[20]", "cuDeviceGetUuid_v2"),
    ("driver_functions.hpp", '"cuMemAlloc_v2"', '"cuMemAlloc"', "cuMemAlloc"),
    ("nccl_functions.hpp", "int root, NcclComm comm,", "NcclComm comm, int root,", "ncclBroadcast"),
    ("nccl_functions.hpp", "kBfloat16 = 9", "kBfloat16 = 10", "kBfloat16"),
    (
        "nvrtc_functions.hpp",
        "(NvrtcProgram program, int options,",
        "(NvrtcProgram program, long options,",
        "nvrtcCompileProgram",
    ),
    ("nccl_functions.hpp", "int max_ctas = INT_MIN", "long max_ctas = INT_MIN", "ncclConfig_t::maxCTAs"),
]


@pytest.fixture(scope="module")
def nvidia() -> list[str]:
    """NVIDIA's headers, as the compiler takes them."""
    command = [sys.executable, "-m", "wmlce", "--root", str(ROOT), "--json", "source", "headers"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "ci"), *sys.path])}
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    return [word for folder in json.loads(run.stdout)["include"] for word in ("-isystem", folder)]


def compiled(nvidia: list[str], sources: Path) -> subprocess.CompletedProcess[str]:
    """What the compiler says of test_headers.cpp."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.fail("no g++: ci/debian-packages.txt names it")
    command = [
        compiler,
        "-std=c++20",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsyntax-only",
        "-I",
        str(sources),
        *nvidia,
    ]
    return subprocess.run(
        [*command, str(HERE / "test_headers.cpp")], capture_output=True, text=True, timeout=300, check=False
    )


def test_declarations_are_those_of_the_headers(nvidia: list[str]) -> None:
    run = compiled(nvidia, SOURCES)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(("file", "right", "wrong", "told"), WRONG, ids=[row[3] for row in WRONG])
def test_a_wrong_declaration_is_found(
    nvidia: list[str], tmp_path: Path, file: str, right: str, wrong: str, told: str
) -> None:
    shutil.copytree(SOURCES / "cuda", tmp_path / "cuda")
    changed = tmp_path / "cuda" / file
    text = changed.read_text()
    assert right in text
    changed.write_text(text.replace(right, wrong))
    run = compiled(nvidia, tmp_path)
    assert run.returncode != 0 and told in run.stderr, run.stderr
