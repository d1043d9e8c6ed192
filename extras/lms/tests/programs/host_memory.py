"""Moves tensors to host memory until none is left for them: an error, and not the end by a signal."""

import sys

import lms.torch
import torch
from lms import _sizes

torch.set_num_threads(1)
print("memory:", _sizes.machine_memory())
x = torch.ones(64, 1 << 16, requires_grad=True)  # 16 MB
with lms.torch.enable("64MB", min_size="1MB", device="cpu"):
    y = x * 1.0
    try:
        for _ in range(200):
            y = torch.sin(y)
    except lms.HostMemoryError as error:
        print("refused:", error)
        sys.exit(0)
print("not refused")
