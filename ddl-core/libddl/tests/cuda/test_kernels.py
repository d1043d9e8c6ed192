"""NVIDIA's own compiler takes DDL's kernels, for every kind of GPU that DDL supports. That needs no GPU."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
SOURCE = ROOT / "ddl-core/libddl/src/cuda/kernels/reduce.cu"
FUNCTIONS = {
    f"ddl_{op}_{kind}"
    for op in ("sum", "min", "max", "product")
    for kind in ("float", "double", "half", "bfloat16", "int32", "int64")
}
# As in src/cuda/nvrtc.cpp
OPTIONS = ("--fmad=false", "--std=c++17")


@pytest.fixture(scope="module")
def nvrtc() -> ctypes.CDLL:
    tried = [os.environ.get("DDL_TEST_NVRTC") or "libnvrtc.so.12"]
    tried += sorted(str(path) for path in ROOT.glob("build/envs/*/lib/libnvrtc.so.12"))
    for name in tried:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    pytest.skip("no libnvrtc.so.12 here: DDL_TEST_NVRTC names it; the wheel nvidia-cuda-nvrtc-cu12 has it")


class Program:
    def __init__(self, nvrtc: ctypes.CDLL, source: str) -> None:
        self.nvrtc = nvrtc
        self.handle = ctypes.c_void_p()
        created = nvrtc.nvrtcCreateProgram(
            ctypes.byref(self.handle), source.encode(), b"reduce.cu", 0, None, None
        )
        assert created == 0

    def text(self, what: str) -> bytes:
        size = ctypes.c_size_t()
        assert getattr(self.nvrtc, f"nvrtcGet{what}Size")(self.handle, ctypes.byref(size)) == 0
        found = ctypes.create_string_buffer(size.value)
        assert getattr(self.nvrtc, f"nvrtcGet{what}")(self.handle, found) == 0
        return found.raw

    def compile(self, architecture: str) -> int:
        words = [f"--gpu-architecture={architecture}", *OPTIONS]
        options = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        return int(self.nvrtc.nvrtcCompileProgram(self.handle, len(words), options))


@pytest.mark.long
@pytest.mark.parametrize("capability", ["70", "80", "90"])
def test_kernels_compile(nvrtc: ctypes.CDLL, capability: str) -> None:
    program = Program(nvrtc, SOURCE.read_text())
    assert program.compile(f"compute_{capability}") == 0, program.text("ProgramLog")
    ptx = program.text("PTX").decode()
    assert set(re.findall(r"^\.visible \.entry (\w+)\(", ptx, re.MULTILINE)) == FUNCTIONS
    # Sums and products are rounded one by one, and small numbers are not lost.
    assert ".ftz" not in ptx and "fma.rn.f" not in ptx.replace("div", "")
    # Machine code: the assembler takes it as well.
    program = Program(nvrtc, SOURCE.read_text())
    assert program.compile(f"sm_{capability}") == 0, program.text("ProgramLog")
    assert program.text("CUBIN").startswith(b"\x7fELF")


def test_what_is_wrong_is_found(nvrtc: ctypes.CDLL) -> None:
    program = Program(nvrtc, SOURCE.read_text().replace("return a + b;", "return a + c;"))
    assert program.compile("compute_80") != 0
    assert b'identifier "c" is undefined' in program.text("ProgramLog")
