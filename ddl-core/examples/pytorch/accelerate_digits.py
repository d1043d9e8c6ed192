"""Hugging Face Accelerate on the backend `ddl`: handwritten digits, for 1 or many ranks.

Needs:   pip install accelerate
Run it:  ddlrun -np 2 python accelerate_digits.py
"""

import argparse
from pathlib import Path

import ddl.torch
import torch
import torch.distributed as dist
from accelerate import Accelerator, DataLoaderConfiguration
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch", type=int, default=60, help="images of one step, over all ranks")
parser.add_argument("--save", type=Path, help="file for the trained weights")
parser.add_argument("--device", choices=("cpu", "gpu"), help="what computes; a GPU where there is one")
parser.add_argument("--use_fp16", action="store_true", help="float16, with the loss scaled; on a GPU")
options = parser.parse_args()
if options.device == "gpu" and not torch.cuda.is_available():
    raise SystemExit("--device=gpu: torch sees no GPU; install powerai-gpu, or use --device=cpu")

dist.init_process_group("ddl")  # first: Accelerate keeps the process group that it finds
device = ddl.torch.local_device(options.device)  # each rank has a GPU of its own
accelerator = Accelerator(
    cpu=device.type == "cpu",
    mixed_precision="fp16" if options.use_fp16 else "no",
    dataloader_config=DataLoaderConfiguration(split_batches=True),
)

torch.manual_seed(1)
images, labels = load_digits(return_X_y=True)
pixels, digits = torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)
loader = DataLoader(TensorDataset(pixels[:1500], digits[:1500]), batch_size=options.batch)
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
model, optimizer, loader = accelerator.prepare(network, optimizer, loader)

for epoch in range(options.epochs):
    for batch, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), targets)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    mean = accelerator.reduce(loss.detach(), "mean").item()
    accelerator.print(f"epoch {epoch + 1} loss {mean:.3f}")

with torch.no_grad():
    answers = network(pixels[1500:].to(accelerator.device)).argmax(1).cpu()
    accuracy = (answers == digits[1500:]).float().mean().item()
accelerator.print(f"ranks {accelerator.num_processes}  test accuracy {accuracy:.3f}")
if options.save is not None and accelerator.is_main_process:
    torch.save(accelerator.unwrap_model(model).state_dict(), options.save)
accelerator.end_training()  # destroys the process group, too
