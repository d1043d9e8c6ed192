"""DDL beside torch's own process group; then a child process, which is no rank."""

import os
import subprocess
import sys

import ddl
import numpy as np
import torch
import torch.distributed as distributed

total = ddl.allreduce(np.full(100003, ddl.rank() + 1.0))
distributed.init_process_group("gloo")
tensor = torch.full((3,), ddl.rank() + 1.0)
distributed.all_reduce(tensor)
assert tensor[0].item() == total[0] == total[-1]
assert distributed.get_rank() == ddl.rank() == int(os.environ["RANK"])
distributed.destroy_process_group()

child = subprocess.run(
    [sys.executable, "-c", "import ddl; print(ddl.size())"], capture_output=True, text=True, timeout=60
)
assert child.stdout == "1\n", child

place = f"local {ddl.local_rank()} of {ddl.local_size()} host {ddl.host_index()} of {ddl.num_hosts()}"
said = f"rank {ddl.rank()} of {ddl.size()} {place} on {os.uname().nodename} sum {total[0]:g}\n"
# one write: torchrun starts Python unbuffered, where print makes two, and another rank's gets in between
sys.stdout.write(f"{said}transports {' '.join(ddl.describe()['transports'])}\n")
