"""DeepSpeed's ZeRO on the backend `ddl`: handwritten digits, for 1 or many ranks.

Needs:   pip install deepspeed
Run it:  ddlrun -np 2 python deepspeed_digits.py --stage 3
"""

import argparse
import os
import sys
from pathlib import Path

import ddl.torch
import torch

# before deepspeed is imported
os.environ.setdefault(
    "DS_ACCELERATOR",
    "cuda" if torch.cuda.is_available() and not {"cpu", "--device=cpu"} & {*sys.argv} else "cpu",
)

import deepspeed
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--stage", type=int, default=2, choices=(0, 1, 2, 3), help="what ZeRO shards")
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch", type=int, default=60, help="images of one step, over all ranks")
parser.add_argument("--save", type=Path, help="file for the trained weights")
parser.add_argument("--device", choices=("cpu", "gpu"), help="what computes; a GPU where there is one")
parser.add_argument("--use_fp16", action="store_true", help="float16, with the loss scaled; on a GPU")
options = parser.parse_args()
if options.device == "gpu" and not torch.cuda.is_available():
    raise SystemExit("--device=gpu: torch sees no GPU; install powerai-gpu, or use --device=cpu")

device = ddl.torch.local_device(options.device)  # each rank has a GPU of its own
deepspeed.init_distributed("ddl")
rank, ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(1)
images, labels = load_digits(return_X_y=True)
pixels, digits = torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)
training = TensorDataset(pixels[:1500], digits[:1500])
sampler: DistributedSampler = DistributedSampler(training, shuffle=False)
loader = DataLoader(training, batch_size=options.batch // ranks, sampler=sampler)
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
engine, *_ = deepspeed.initialize(
    model=network,
    # torch's own: DeepSpeed's optimizers for processors need a compiler
    optimizer=torch.optim.AdamW(network.parameters(), lr=3e-3),
    config={
        "train_batch_size": options.batch,
        "train_micro_batch_size_per_gpu": options.batch // ranks,
        "zero_optimization": {"stage": options.stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "gradient_clipping": 1.0,
        "fp16": {"enabled": options.use_fp16},  # with a loss scale that adapts
    },
)

for epoch in range(options.epochs):
    for batch, targets in loader:
        batch = batch.to(device, torch.float16 if options.use_fp16 else torch.float32)
        loss = nn.functional.cross_entropy(engine(batch), targets.to(device))
        engine.backward(loss)
        engine.step()
    if rank == 0:
        print(f"epoch {epoch + 1} loss {loss.item():.3f}", flush=True)

with deepspeed.zero.GatheredParameters(list(network.parameters())), torch.no_grad():
    weights = {name: value.detach().float().cpu() for name, value in network.named_parameters()}
if rank == 0:
    hidden = (pixels[1500:] @ weights["1.weight"].T + weights["1.bias"]).relu()
    answers = (hidden @ weights["3.weight"].T + weights["3.bias"]).argmax(1)
    accuracy = (answers == digits[1500:]).float().mean().item()
    print(f"ranks {ranks}  test accuracy {accuracy:.3f}")
    if options.save is not None:
        torch.save(weights, options.save)
dist.destroy_process_group()
