"""The backend on the tensors of a device: streams, memory and training, on stand-ins for CUDA and NCCL.

No GPU is needed, and none is used: device/stand_in_device.cpp is a device of torch on ../cuda's stand-in for
the driver.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rank_processes import ROOT

STAND_INS = Path(os.environ.get("DDL_TEST_STAND_INS") or ROOT / "build/ddl-core/libddl/tests/cuda/stand-ins")
COLLECTIVES = (
    *("all_reduce", "moved", "all_to_all", "reduced_to_some", "messages", "asynchronous", "groups"),
    *("objects", "inference", "what_it_cannot"),
)
STREAMS = (
    *(
        "the_host_goes_on",
        "other_threads_go_on",
        "calls_and_copies_alternate",
        "streams_go_on",
        "futures_wait",
    ),
    *("memory_is_kept", "storage_is_freed"),
    *("messages_in_any_order", "messages_take_memory", "calls_take_memory"),
    *("groups_give_back", "a_failure_is_told", "mixed"),
)
TRAINING = ("ddp", "ddp_hook", "ddp_compiled", "fsdp2", "fsdp2_on_rows", "functional", "functional_compiled")


@pytest.fixture(scope="module")
def device(torch_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a program whose tensors are on the device."""
    if shutil.which("g++") is None:
        pytest.skip("no g++: apt-get install g++")
    if not (STAND_INS / "libcuda.so.1").exists():
        pytest.skip(f"no stand-ins for CUDA in {STAND_INS}: ci/test ddl-core builds them")
    [torch] = torch_prefix.glob("lib/python3*/site-packages/torch")
    library = tmp_path_factory.mktemp("device") / "stand_in_device.so"
    source = Path(__file__).parent / "device/stand_in_device.cpp"
    # with the compiler's own C++ library, which may be newer than the environment's
    words = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-static-libstdc++", "-static-libgcc"]
    for folder in ("include", "include/torch/csrc/api/include"):
        words += ["-isystem", str(torch / folder)]
    words += [f"-I{ROOT / 'ddl-core/libddl/src'}", str(source), "-o", str(library)]
    words += [f"-L{STAND_INS}", "-l:libcuda.so.1", f"-L{torch / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=400)
    assert run.returncode == 0, run.stderr[-3000:]
    strict = {"STAND_IN_PATIENCE_S": "60", "STAND_IN_ALLOCATIONS_WAIT": "1"}
    return {"STANDIN_DEVICE": str(library), "LD_LIBRARY_PATH": str(STAND_INS), **strict}


@pytest.mark.parametrize(
    ("program", "cases", "way"),
    [
        pytest.param("streams.py", STREAMS, "staged", id="streams", marks=pytest.mark.long),
        pytest.param("streams.py", STREAMS, "ipc", id="streams-ipc", marks=pytest.mark.long),
        pytest.param("streams.py", STREAMS, "nccl", id="streams-nccl"),
        pytest.param("collectives.py", COLLECTIVES, "staged", id="collectives", marks=pytest.mark.long),
        pytest.param("collectives.py", COLLECTIVES, "ipc", id="collectives-ipc", marks=pytest.mark.long),
        pytest.param("collectives.py", COLLECTIVES, "nccl", id="collectives-nccl", marks=pytest.mark.long),
        pytest.param("device_training.py", TRAINING, "nccl", id="training-nccl"),
    ],
)
def test_two_ranks(jobs: Any, device: dict[str, str], program: str, cases: tuple[str, ...], way: str) -> None:
    """Which share a GPU, so that buffers are staged in the host's memory or exchanged by CUDA IPC, or have
    one each, and NCCL.
    """
    settings = {"STAND_IN_DEVICES": "2" if way == "nccl" else "1", "DDL_OPTIONS": "-dbg_level 1"}
    settings |= {"DDL_NVRTC_LIBRARY": "none"} if way == "staged" else {}
    job = jobs.mpirun(2, program, **device, **settings)
    assert job.status == 0, job.out + job.err[-5000:]
    assert {case: job.passed(case) for case in cases} == dict.fromkeys(cases, 2)
    said = {"staged": "are staged in the host's memory", "ipc": "by CUDA IPC"}
    assert {other for other, text in said.items() if text in job.err} == {way} - {"nccl"}, job.err


@pytest.fixture(scope="module")
def gpu(torch_prefix: Path) -> dict[str, str]:
    """Variables of a program whose tensors are on a real GPU."""
    words = [str(torch_prefix / "bin/python"), "-c", "import torch; print(torch.cuda.is_available())"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if run.stdout.split()[-1:] != ["True"]:
        pytest.skip("no GPU that the environment's PyTorch can use")
    return {"DDL_TEST_DEVICE": "cuda", "CUDA_VISIBLE_DEVICES": "0"}


@pytest.mark.parametrize("way", ["staged", "ipc"])
@pytest.mark.parametrize(
    ("program", "cases"),
    [("streams.py", STREAMS), ("collectives.py", COLLECTIVES), ("device_training.py", TRAINING)],
    ids=["streams", "collectives", "training"],
)
def test_two_ranks_on_a_gpu(
    jobs: Any, gpu: dict[str, str], program: str, cases: tuple[str, ...], way: str
) -> None:
    """The same on hardware. Ranks that share a GPU, as there may be one only."""
    settings = {"DDL_NVRTC_LIBRARY": "none"} if way == "staged" else {}
    job = jobs.mpirun(2, program, **gpu, **settings, DDL_OPTIONS="-dbg_level 1 -timeout 60")
    assert job.status == 0, job.out + job.err[-5000:]
    assert {case: job.passed(case) for case in cases} == dict.fromkeys(cases, 2)
    said = {"staged": "are staged in the host's memory", "ipc": "by CUDA IPC"}
    assert {other for other, text in said.items() if text in job.err} == {way}, job.err
