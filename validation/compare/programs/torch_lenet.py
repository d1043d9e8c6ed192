"""LeNet by PyTorch's DistributedDataParallel, with the backend ddl or gloo, and on request with Large Model
Support.

Started as ranks: ddlrun -np 2 python torch_lenet.py --backend ddl
"""

from __future__ import annotations

import contextlib

import digits
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def lenet() -> nn.Module:
    """As in tf_cnn_benchmarks: 61 706 parameters, which begin as TensorFlow's layers do."""
    made = nn.Sequential(
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
    for layer in made:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return made


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
    optimizer = torch.optim.SGD(model.parameters(), lr=schedule.rate, momentum=digits.MOMENTUM)
    loss_of = nn.CrossEntropyLoss()
    images, labels = digits.load(training=False)
    held_out = torch.from_numpy(images).permute(0, 3, 1, 2)
    support: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if options.lms_limit:
        import lms.torch

        support = lms.torch.enable(limit=options.lms_limit, min_size="1KB")

    clock = digits.Clock(rank == 0)
    with support:
        for epoch in range(schedule.epochs):

            def steps(epoch: int = epoch) -> int:
                trained = 0
                for batch, targets in digits.batches(schedule, rank, size, epoch):
                    optimizer.zero_grad()
                    inputs = torch.from_numpy(batch).permute(0, 3, 1, 2)
                    loss_of(model(inputs), torch.from_numpy(targets)).backward()
                    optimizer.step()
                    trained += len(targets) * size
                return trained

            model.train()
            clock.train(steps)
            model.eval()
            with torch.no_grad():
                found = model.module(held_out).argmax(1).numpy()
            clock.accuracy(float((found == labels).mean()))
    clock.end()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
