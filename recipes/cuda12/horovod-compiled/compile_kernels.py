"""Compiles kernels.cu as cuda_kernels.cc has it compiled, for every generation of GPUs: LIBNVRTC KERNELS.CU
CUDA_KERNELS.CC. Needs no GPU.
"""

import ctypes
import re
import sys
from pathlib import Path

nvrtc = ctypes.CDLL(sys.argv[1])
source = Path(sys.argv[3]).read_text()
halves = re.search(r"kHalves\[\] =\n(.*?);\n\n", source, re.DOTALL)[1]
text = (
    "".join(eval(line) for line in re.findall(r'"(?:[^"\\]|\\.)*"', halves)) + Path(sys.argv[2]).read_text()
)
types = re.findall(r'return "(\w+)";', source)
assert len(types) == 7, types
kernels = ["copy_tensors", *(f"{kind}_{name}" for kind in ("scale", "copy_scaled") for name in types)]

count = ctypes.c_int()
assert nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count)) == 0
architectures = (ctypes.c_int * count.value)()
assert nvrtc.nvrtcGetSupportedArchs(architectures) == 0
for architecture in architectures:
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"k.cu", 0, None, None) == 0
    options = (ctypes.c_char_p * 2)(f"--gpu-architecture=sm_{architecture}".encode(), b"--std=c++17")
    if nvrtc.nvrtcCompileProgram(program, 2, options) != 0:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        sys.exit(f"sm_{architecture}: {log.value.decode()}")
    assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0 and size.value > 0
    binary = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetCUBIN(program, binary) == 0
    missing = [name for name in kernels if f".text.{name}\0".encode() not in binary.raw]
    assert not missing, f"sm_{architecture}: {missing}"
    print(f"sm_{architecture}: {len(kernels)} kernels, {size.value} bytes", flush=True)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
