"""LeNet by PyTorch's DistributedDataParallel, with the backend ddl or gloo, and on request with Large Model
Support.

Started as ranks: ddlrun -np 2 python torch_lenet.py --backend ddl
"""

from __future__ import annotations

import contextlib

import digits
import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def lenet() -> nn.Module:
    """The network of tf_cnn_benchmarks: 61 706 parameters, which begin as TensorFlow's layers do."""
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 120, 5),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, digits.CLASSES),
    )
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return model


def inputs_of(images: NDArray[np.float32]) -> torch.Tensor:
    return torch.from_numpy(images).permute(0, 3, 1, 2)


def optimizer_of(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=digits.MOMENTUM, nesterov=True)


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: digits.Batches, workers: int = 1
) -> int:
    """Train on a worker's batches; the number of images that all workers have trained on meanwhile."""
    trained = 0
    for images, labels in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs_of(images)), torch.from_numpy(labels)).backward()
        optimizer.step()
        trained += len(labels) * workers
    return trained


def accuracy(model: nn.Module) -> float:
    """On the images that are held out."""
    images, labels = digits.load(training=False)
    with torch.no_grad():
        return float((model(inputs_of(images)).argmax(1).numpy() == labels).mean())


def main() -> None:
    parser = digits.parser(__doc__)
    parser.add_argument("--backend", choices=("ddl", "gloo"), required=True)
    parser.add_argument("--lms-limit", help="bytes of saved activations that stay on the device, such as 1MB")
    options = parser.parse_args()
    schedule = digits.schedule_of(options)

    torch.set_num_threads(1)
    torch.manual_seed(1234)
    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(lenet())
    optimizer = optimizer_of(model, schedule.rate)
    support: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if options.lms_limit:
        import lms.torch

        support = lms.torch.enable(limit=options.lms_limit, min_size="1KB")

    def steps(epoch: int) -> int:
        return train_epoch(model, optimizer, digits.batches(schedule, rank, size, epoch), size)

    clock = digits.Clock(rank == 0)
    with support:
        clock.train_epochs(schedule.epochs, steps, lambda: accuracy(model.module))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
