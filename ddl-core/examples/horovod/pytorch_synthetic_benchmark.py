"""Measures how many images a second Horovod trains in PyTorch, on generated images.

Run it:  ddlrun -np 2 python pytorch_synthetic_benchmark.py
"""

import argparse
import os
import timeit

import horovod.torch as hvd
import numpy as np
import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument(
    "--model", default="resnet50", help="resnet50, resnet101, resnet152, or one of torchvision"
)
parser.add_argument("--batch-size", type=int, default=32, help="images of one step and rank")
parser.add_argument("--num-warmup-batches", type=int, default=10, help="steps before the clock starts")
parser.add_argument("--num-batches-per-iter", type=int, default=10, help="steps of one measurement")
parser.add_argument("--num-iters", type=int, default=10, help="measurements")
parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
parser.add_argument(
    "--use-adasum", action="store_true", help="combine gradients by Adasum, not by their average"
)
parser.add_argument("--no-cuda", action="store_true", help="compute on processors")
options = parser.parse_args()

#: How many blocks each stage of a ResNet has (He et al., "Deep residual learning for image recognition").
STAGES = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}


class Block(nn.Module):
    """Three convolutions and a way around them."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.inside = nn.Sequential(
            *(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        self.around: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.around = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inside(x) + self.around(x))


def resnet(stages: tuple[int, ...]) -> nn.Module:
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, blocks in enumerate(stages):
        for block in range(blocks):
            layers.append(Block(inputs, 64 << stage, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * 64 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def build_model(name: str) -> nn.Module:
    if name in STAGES:  # torchvision is not part of every environment
        return resnet(STAGES[name])
    try:
        import torchvision.models
    except ModuleNotFoundError:
        raise SystemExit(
            f"--model={name}: {', '.join(STAGES)} are here; install torchvision for others"
        ) from None
    if not hasattr(torchvision.models, name):
        raise SystemExit(f"--model={name}: torchvision.models has no model of this name")
    return getattr(torchvision.models, name)()


hvd.init()
torch.manual_seed(hvd.rank())
device = torch.device("cpu")
if not options.no_cuda and torch.cuda.is_available():  # each rank has a GPU of its own; ddlrun says which
    device = torch.device("cuda", int(os.environ.get("DDL_LOCAL_GPU", hvd.local_rank())))
    torch.cuda.set_device(device)
kind = "CPU" if device.type == "cpu" else "GPU"

model = build_model(options.model).to(device)
# Adasum takes the learning rate of one process.
rate = 0.01 * (1 if options.use_adasum else hvd.size())
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=rate),
    named_parameters=model.named_parameters(),
    compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
    op=hvd.Adasum if options.use_adasum else hvd.Average,
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
images = torch.rand(options.batch_size, 3, 224, 224, device=device)
labels = torch.randint(1000, (options.batch_size,), device=device)


def train_one_batch() -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


def log(text: str) -> None:
    if hvd.rank() == 0:
        print(text, flush=True)


log(f"Model: {options.model}\nBatch size: {options.batch_size}\nNumber of {kind}s: {hvd.size()}")
log("Running warmup...")
timeit.timeit(train_one_batch, number=options.num_warmup_batches)
log("Running benchmark...")
rates = []
for iteration in range(options.num_iters):
    seconds = timeit.timeit(train_one_batch, number=options.num_batches_per_iter)
    rates.append(options.batch_size * options.num_batches_per_iter / seconds)
    log(f"Iter #{iteration}: {rates[-1]:.1f} img/sec per {kind}")
mean, interval = np.mean(rates), 1.96 * np.std(rates)
log(f"Img/sec per {kind}: {mean:.1f} +-{interval:.1f}")
log(f"Total img/sec on {hvd.size()} {kind}(s): {hvd.size() * mean:.1f} +-{hvd.size() * interval:.1f}")
hvd.shutdown()
