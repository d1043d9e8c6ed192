"""Ends right after many operations, while Horovod's timeline still has to be written."""

import horovod.torch as hvd
import torch

OPERATIONS = 4000

hvd.init()
tensors = [torch.ones(1) for _ in range(OPERATIONS)]
for found in hvd.grouped_allreduce(tensors, op=hvd.Sum, name="many"):
    assert found.item() == hvd.size()
hvd.shutdown()
print("passed timeline_end")
