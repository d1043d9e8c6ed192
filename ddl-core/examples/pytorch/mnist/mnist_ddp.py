"""Handwritten digits in PyTorch with DistributedDataParallel, by DDL or another backend.

Run it:  ddlrun -np 2 python mnist_ddp.py --dist-backend ddl
"""

import argparse
import os

import ddl.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from wml_ce_commands import mnist

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--dist-backend", default="ddl", help="ddl, gloo or nccl")
parser.add_argument("--dist-url", default="env://", help="where the ranks meet")
parser.add_argument("--data_dir", help="has MNIST's idx files; without it, digits of scikit-learn")
parser.add_argument("--batch-size", type=int, default=64, help="images of one step, over all ranks")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--lr", type=float, default=0.05, help="learning rate of a single process")
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--no-cuda", action="store_true", help="compute on processors")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--log-interval", type=int, default=10, metavar="STEPS")
options = parser.parse_args()

if "RANK" not in os.environ:  # nobody launched it: a world of one rank
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
dist.init_process_group(options.dist_backend, init_method=options.dist_url)  # 1. the ranks find each other
rank, ranks = dist.get_rank(), dist.get_world_size()
device = ddl.torch.local_device("cpu" if options.no_cuda else None)  # each rank has a GPU of its own
torch.manual_seed(options.seed + rank)

data = mnist.load(options.data_dir)
# PyTorch has the channel first
pixels, test_pixels = (
    torch.from_numpy(images).permute(0, 3, 1, 2).to(device)
    for images in (data.train_images, data.test_images)
)
training = TensorDataset(pixels, torch.from_numpy(data.train_labels).to(device))
# 2. disjoint data, equally much on every rank
sampler: DistributedSampler = DistributedSampler(training, drop_last=True)
loader = DataLoader(training, batch_size=options.batch_size // ranks, sampler=sampler, drop_last=True)

network = nn.Sequential(
    nn.Conv2d(1, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(6), nn.Flatten(), nn.Linear(16 * 36, 10)
).to(device)
model = DistributedDataParallel(network)  # 3. the same start, averaged gradients
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=options.momentum)

for epoch in range(1, options.epochs + 1):
    sampler.set_epoch(epoch)
    for step, (batch, digits) in enumerate(loader, 1):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), digits)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % options.log_interval == 0:
            print(f"epoch {epoch} step {step} of {len(loader)} loss {loss.item():.3f}", flush=True)

if rank == 0:  # 4. evaluated once
    with torch.no_grad():
        predicted = network(test_pixels).argmax(1).cpu()
    accuracy = (predicted == torch.from_numpy(data.test_labels)).float().mean().item()
    print(f"ranks {ranks}  test accuracy {accuracy:.3f}")
    if accuracy < 0.8:
        raise SystemExit("the model did not learn")
dist.destroy_process_group()
