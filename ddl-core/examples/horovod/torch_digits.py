"""A PyTorch script made distributed by Horovod: handwritten digits, for 1 or many ranks.

Run it:  ddlrun -np 2 python torch_digits.py
"""

import argparse
import os
from pathlib import Path

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch", type=int, default=64, help="images of one step, over all ranks")
parser.add_argument("--rate", type=float, default=2e-3, help="learning rate of a single process")
parser.add_argument("--folder", type=Path, help="for checkpoints; none are written without it")
parser.add_argument("--device", choices=("cpu", "gpu"), help="what computes; a GPU where there is one")
parser.add_argument("--use_fp16", action="store_true", help="compute in float16, with the loss scaled")
options = parser.parse_args()
if options.device == "gpu" and not torch.cuda.is_available():
    raise SystemExit("--device=gpu: torch sees no GPU; install powerai-gpu, or use --device=cpu")

hvd.init()  # 1. the ranks find each other
rank, ranks = hvd.rank(), hvd.size()
device = torch.device("cpu")
if options.device != "cpu" and torch.cuda.is_available():
    # each rank has a GPU of its own; ddlrun says which
    device = torch.device("cuda", int(os.environ.get("DDL_LOCAL_GPU", hvd.local_rank())))
    torch.cuda.set_device(device)
torch.manual_seed(1 + rank)

images, labels = load_digits(return_X_y=True)
pixels = torch.tensor(images / 16.0, dtype=torch.float32, device=device).reshape(-1, 1, 8, 8)
digits = torch.tensor(labels, device=device)
training = TensorDataset(pixels[:1500], digits[:1500])
# 2. disjoint data, equally much on every rank; the last 297 images are kept for the test
sampler: DistributedSampler = DistributedSampler(training, num_replicas=ranks, rank=rank, drop_last=True)
loader = DataLoader(training, batch_size=options.batch // ranks, sampler=sampler, drop_last=True)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 64), nn.ReLU(), nn.Linear(64, 10)
).to(device)
# 3. averaged gradients, and the same start; Adam takes the square root of the number of ranks
plain = torch.optim.Adam(model.parameters(), lr=options.rate * ranks**0.5)
optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
# Gradients that float16 would lose are kept by a factor of the loss, which is found on the way.
scaler = torch.amp.GradScaler(device.type, enabled=options.use_fp16)

for epoch in range(options.epochs):
    sampler.set_epoch(epoch)
    for batch, targets in loader:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.float16, enabled=options.use_fp16):
            loss = nn.functional.cross_entropy(model(batch), targets)
        scaler.scale(loss).backward()
        optimizer.synchronize()  # so that the scaler finds the same on all ranks
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    if rank == 0:
        print(f"epoch {epoch + 1} loss {loss.item():.3f}", flush=True)
        if options.folder is not None:  # 4. checkpoints are written by rank 0 alone
            options.folder.mkdir(parents=True, exist_ok=True)
            torch.save(model.state_dict(), options.folder / "digits.pt")

if rank == 0:
    with torch.no_grad():
        accuracy = (model(pixels[1500:]).argmax(1) == digits[1500:]).float().mean().item()
    print(f"ranks {ranks}  test accuracy {accuracy:.3f}")
    if accuracy < 0.8:
        raise SystemExit("the model did not learn")
hvd.shutdown()
