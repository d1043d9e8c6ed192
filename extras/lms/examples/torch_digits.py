"""Large Model Support in PyTorch: a deep network on handwritten digits, on 1 or many ranks.

Run it:  python torch_digits.py --lms-limit 2MB
    or:  ddlrun -np 2 python torch_digits.py --lms-limit 2MB
"""

import argparse
import os
import time

import ddl.torch
import lms
import lms.torch
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lms-limit", help="of saved tensors, for example 12GB; without it, nothing is moved")
parser.add_argument("--lms-min-size", default="16KB", help="smaller tensors stay on the device")
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch", type=int, default=100, help="images of one step, over all ranks")
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--blocks", type=int, default=8)
parser.add_argument("--device", choices=("cpu", "gpu"), help="what computes; a GPU where there is one")
options = parser.parse_args()


class Block(nn.Module):
    """Keeps much more than it returns."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inside = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inside(x)


if "RANK" not in os.environ:  # nobody launched it: a world of one rank
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
dist.init_process_group("ddl")
rank, ranks = dist.get_rank(), dist.get_world_size()
device = ddl.torch.local_device(options.device)
torch.manual_seed(1)

images, labels = load_digits(return_X_y=True)
pixels = torch.tensor(images / 16.0, dtype=torch.float32, device=device)
digits = torch.tensor(labels, device=device)
blocks = [Block(options.width) for _ in range(options.blocks)]
network = nn.Sequential(nn.Linear(64, options.width), *blocks, nn.Linear(options.width, 10)).to(device)
model = DistributedDataParallel(network)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

# The one line that it takes. Without a limit it counts, and moves nothing.
lms.torch.enable(options.lms_limit or "1TB", min_size=options.lms_min_size, device=device.type)
share = options.batch // ranks
steps = 1500 // options.batch
start_time = time.monotonic()
for _ in range(options.epochs):
    order = torch.randperm(1500, device=device)
    for step in range(steps):
        chosen = order[step * options.batch + rank * share :][:share]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pixels[chosen]), digits[chosen]).backward()
        optimizer.step()
if device.type == "cuda":
    torch.cuda.synchronize()
seconds = time.monotonic() - start_time

stats = lms.torch.stats()
lms.torch.disable()
if rank == 0:
    with torch.no_grad():
        accuracy = (network(pixels[1500:]).argmax(1) == digits[1500:]).double().mean().item()
    peaks = f"{stats.peak_saved} bytes on the device, {stats.peak_kept} bytes without LMS"
    print(f"peak of saved activations: {peaks}")
    moved = lms.format_bytes(stats.moved_out)
    print(f"moved to the host: {moved}, {stats.tensors_prefetched} tensors fetched early")
    weights = nn.utils.parameters_to_vector(network.parameters())
    print(f"sum of weights: {weights.double().sum().item()!r}")
    print(f"images/sec: {options.epochs * steps * share * ranks / seconds:.0f}")
    print(f"accuracy: {accuracy:.2f}")
dist.destroy_process_group()
