"""PyTorch: a training that goes on from its latest checkpoint, with as many ranks as there are then.

    ddlrun -np 2 -max-restarts 3 -checkpoint-dir checkpoints python torch_digits.py

It ends as a run that nothing happened to: to the bit with as many ranks as before, else up to rounding.
A run that goes on in the middle of an epoch skips what that epoch has seen.
"""

import argparse
import os
import time
from pathlib import Path

import ddl
import ddl.torch
import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch", type=int, default=60, help="images of one step, over all ranks")
parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
parser.add_argument(
    "--pause", type=float, default=0.0, help="seconds to wait in each step, to have time to look"
)
parser.add_argument("--device", choices=("cpu", "gpu"), help="what computes; a GPU where there is one")
parser.add_argument("--use_fp16", action="store_true", help="compute in float16, with the loss scaled")
options = parser.parse_args()
if options.device == "gpu" and not torch.cuda.is_available():
    raise SystemExit("--device=gpu: torch sees no GPU; install powerai-gpu, or use --device=cpu")

if "RANK" not in os.environ:  # nobody launched it: a world of one rank
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
dist.init_process_group("ddl")
rank, ranks = dist.get_rank(), dist.get_world_size()
# 1. The global batch stays the same, however many ranks share it.
if options.batch % ranks:
    raise SystemExit(f"a batch of {options.batch} cannot be shared equally by {ranks} ranks")
folder = Path(ddl.checkpoint_dir("checkpoints") or ".")
latest = folder / "latest.pt"

images, labels = load_digits(return_X_y=True)
device = ddl.torch.local_device(options.device)  # each rank has a GPU of its own
pixels = torch.tensor(images[:1500] / 16.0, dtype=torch.float32, device=device)
digits = torch.tensor(labels[:1500], device=device)

torch.manual_seed(1)  # the same beginning on all ranks
network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(device)
optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
# Gradients that float16 would lose are kept by a factor of the loss, which is found on the way.
scaler = torch.amp.GradScaler(device.type, enabled=options.use_fp16)
noise = torch.Generator().manual_seed(2)  # the random numbers of the training
begin = 0

# 2. Rank 0 reads the checkpoint, and every rank starts from what it has read.
state = [torch.load(latest, weights_only=True, map_location="cpu") if rank == 0 and latest.exists() else None]
dist.broadcast_object_list(state)
if state[0] is not None:
    network.load_state_dict(state[0]["model"])
    optimizer.load_state_dict(state[0]["optimizer"])
    scaler.load_state_dict(state[0]["scaler"])
    noise.set_state(state[0]["noise"])
    begin = state[0]["step"]
model = DistributedDataParallel(network)


def save(step: int) -> None:
    """All that the next step needs. Whoever reads sees the old file or the new one, never half of one."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = latest.with_suffix(".unfinished")
    torch.save(
        {
            "step": step,
            "model": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scaler": scaler.state_dict(),
            "noise": noise.get_state(),
        },
        unfinished,
    )
    unfinished.replace(latest)


if rank == 0:
    after = f", started again after: {ddl.restart_reason()}" if ddl.restart_count() else ""
    print(f"{ranks} ranks, from step {begin}{after}", flush=True)

steps_of_epoch = len(pixels) // options.batch
steps = options.epochs * steps_of_epoch
for step in range(begin, steps):
    # 3. The data of a step follow from the step alone: each epoch deals all images out anew.
    epoch, place = divmod(step, steps_of_epoch)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(3 + epoch))
    share = order[place * options.batch : (place + 1) * options.batch][rank::ranks]
    # 4. Every rank draws the random numbers of the whole batch, and takes those of its share.
    blur = 0.1 * torch.randn(options.batch, 64, generator=noise)[rank::ranks].to(device)
    optimizer.zero_grad()
    with torch.autocast(device.type, torch.float16, enabled=options.use_fp16):
        loss = nn.functional.cross_entropy(model(pixels[share] + blur), digits[share])
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    time.sleep(options.pause)
    if rank == 0 and ((step + 1) % options.every == 0 or step + 1 == steps):
        save(step + 1)
        print(f"step {step + 1} loss {loss.item():.3f}", flush=True)

if rank == 0:
    np.savez(folder / "weights.npz", *(weight.cpu().numpy() for weight in network.state_dict().values()))
    with torch.no_grad():
        predicted = (
            network(torch.tensor(images[1500:] / 16.0, dtype=torch.float32, device=device)).argmax(1).cpu()
        )
    print(f"ranks {ranks}  test accuracy {(predicted == torch.tensor(labels[1500:])).float().mean():.3f}")
dist.destroy_process_group()
