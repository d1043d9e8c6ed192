"""A copy of a rank, as a data loader makes one: it is refused, and its end does not hang."""

import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("ddl")
RANK = dist.get_rank()
# Threads of the group are at work before the process is copied.
dist.all_reduce(torch.ones(3))
if RANK == 0:
    dist.send(torch.ones(4), 1)
else:
    dist.recv(torch.empty(4), 0)

copy = os.fork()
if copy == 0:
    try:
        dist.all_reduce(torch.ones(3))
        said = "nothing"
    except dist.DistBackendError as error:
        said = str(error)
    refused = f"this process was forked from rank {RANK}" in said
    dist.destroy_process_group()
    # Destructors run.
    sys.exit(0 if refused else 1)

end = time.monotonic() + 60
while (ended := os.waitpid(copy, os.WNOHANG)) == (0, 0):
    assert time.monotonic() < end, "the copy hangs"
    time.sleep(0.05)
assert os.waitstatus_to_exitcode(ended[1]) == 0, ended
total = torch.ones(3)
dist.all_reduce(total)
assert total.tolist() == [2.0] * 3
dist.destroy_process_group()
sys.stdout.write("passed forked\n")
