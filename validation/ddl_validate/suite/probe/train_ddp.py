"""`python -m …probe.train_ddp STEPS`: a few steps of DistributedDataParallel with the backend `ddl`."""

from __future__ import annotations

import os
import sys
import time

import ddl.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .training import CLASSES, SIDE, conclude, images


def main(steps: int) -> int:
    if "RANK" not in os.environ:
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    dist.init_process_group("ddl")
    device = ddl.torch.local_device(None)
    torch.manual_seed(1 + dist.get_rank())
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * (SIDE - 2) ** 2, CLASSES)
    ).to(device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    losses, seconds = [], []
    for step in range(steps):
        pixels, labels = images(dist.get_rank(), step)
        start = time.perf_counter()
        optimizer.zero_grad()
        outputs = model(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().to(device))
        loss = nn.functional.cross_entropy(outputs, torch.from_numpy(labels).to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    conclude(losses, seconds, (weight.detach().cpu().numpy() for weight in network.parameters()))
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
