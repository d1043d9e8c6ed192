"""lms.torch on a device of PyTorch: streams, pinned memory, and the memory that the device has to have.

The device is ddl-core's stand-in, on its stand-in for CUDA's driver. The last tests use a GPU where
PyTorch sees one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lms_programs import PROGRAMS, ROOT

STAND_INS = Path(os.environ.get("DDL_TEST_STAND_INS") or ROOT / "build/ddl-core/libddl/tests/cuda/stand-ins")
CASES = (
    *("gradients_are_the_same", "on_other_streams", "graphs_are_dropped_while_copies_run", "nothing_waits"),
    *("graphs_are_kept", "without_pinned_memory", "other_devices"),
)


@pytest.fixture(scope="module")
def device(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a program that uses the device."""
    if shutil.which("g++") is None:
        pytest.skip("no g++: apt-get install g++")
    if not (STAND_INS / "libcuda.so.1").exists():
        pytest.skip(f"no stand-ins for CUDA in {STAND_INS}: ci/test extras/lms/tests builds them")
    [torch] = prefix.glob("lib/python3*/site-packages/torch")
    library = tmp_path_factory.mktemp("device") / "stand_in_device.so"
    core = ROOT / "ddl-core"
    words = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-static-libstdc++", "-static-libgcc"]
    for folder in ("include", "include/torch/csrc/api/include"):
        words += ["-isystem", str(torch / folder)]
    words += [
        f"-I{core / 'libddl/src'}",
        str(core / "python/tests/torch/device/stand_in_device.cpp"),
        "-o",
        str(library),
    ]
    words += [f"-L{STAND_INS}", "-l:libcuda.so.1", f"-L{torch / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=400)
    assert run.returncode == 0, run.stderr[-3000:]
    return {"STANDIN_DEVICE": str(library), "LD_LIBRARY_PATH": str(STAND_INS), "STAND_IN_PATIENCE_S": "60"}


@pytest.mark.parametrize("seed", ["1", "2"])
def test_cases(programs: Any, device: dict[str, str], seed: str) -> None:
    """Operations are late by chance; twice, so that other ones are."""
    ended = programs.python(PROGRAMS / "device_cases.py", *CASES, **device, STAND_IN_SEED=seed).ok()
    assert ended.out.splitlines() == [f"passed {case}" for case in CASES], ended.out + ended.err


def test_the_device_needs_less_memory(programs: Any, device: dict[str, str], tmp_path: Path) -> None:
    """The device's allocator gives nothing back to the driver: what it has at the end is the peak."""
    peaks = {}
    for limit in ("", "400KB"):
        folder = tmp_path / f"report{limit}"
        folder.mkdir()
        more = {"LIMIT": limit} if limit else {}
        programs.python(
            PROGRAMS / "device_cases.py", "one_training", **device, **more, STAND_IN_REPORT=str(folder)
        ).ok()
        [report] = folder.glob("*.json")
        peaks[limit] = json.loads(report.read_text())["held_bytes"]
    # 16 layers save 17 tensors of 64 KiB, of which 400 KB are 6; there are the weights and gradients as well
    assert peaks["400KB"] < peaks[""] - 8 * 65536, peaks
    capacity = str((peaks[""] + peaks["400KB"]) // 2)
    failed = programs.python(
        PROGRAMS / "device_cases.py", "one_training", **device, STAND_IN_CAPACITY=capacity
    )
    assert failed.status == 1 and "cuMemAlloc" in failed.err, failed.err
    programs.python(
        PROGRAMS / "device_cases.py", "one_training", **device, LIMIT="400KB", STAND_IN_CAPACITY=capacity
    ).ok()


@pytest.fixture(scope="module")
def gpu(prefix: Path) -> dict[str, str]:
    """Variables of a program that uses a GPU; sums are in the same order in every run."""
    words = [str(prefix / "bin/python"), "-c", "import torch; print(torch.cuda.is_available())"]
    if subprocess.run(words, capture_output=True, text=True, timeout=120).stdout.strip() != "True":
        pytest.skip("PyTorch sees no GPU here")
    return {"DDL_TEST_DEVICE": "cuda", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def test_cases_on_a_gpu(programs: Any, gpu: dict[str, str]) -> None:
    ended = programs.python(PROGRAMS / "device_cases.py", *CASES, **gpu).ok()
    assert ended.out.splitlines() == [f"passed {case}" for case in CASES], ended.out + ended.err


def test_a_gpu_needs_less_memory(programs: Any, gpu: dict[str, str]) -> None:
    peaks = []
    for more in ({}, {"LIMIT": "400KB"}):
        ended = programs.python(PROGRAMS / "device_cases.py", "one_training", **gpu, **more).ok()
        peaks.append(int(ended.value("peak")))
    assert peaks[1] < peaks[0] - 8 * 65536, peaks
