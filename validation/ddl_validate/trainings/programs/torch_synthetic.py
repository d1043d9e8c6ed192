"""Trains a network with PyTorch on synthetic images and prints the speed as tf_cnn_benchmarks does.

Started as ranks: ddlrun -np 2 python torch_program.py --backend ddl --model alexnet
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from networks import CLASSES, PIXELS, network
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def device_of(name: str) -> torch.device:
    """The processor, or this rank's GPU: ranks of a host share its GPUs out in their order."""
    if name == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise SystemExit("--device=gpu: this PyTorch finds no GPU; use --device=cpu")
    local = os.environ.get("LOCAL_RANK") or os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or "0"
    device = torch.device("cuda", int(local) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def finish(device: torch.device) -> None:
    """Wait for the work queued on a GPU; a clock would not see it otherwise."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def exchange_alone(model: nn.Module, repetitions: int, device: torch.device) -> float:
    """Seconds of one all-reduce of as many elements as there are gradients, with nothing beside it."""
    gradients = torch.zeros(sum(parameter.numel() for parameter in model.parameters()), device=device)
    dist.all_reduce(gradients)
    finish(device)
    dist.barrier()
    started = time.perf_counter()
    for _ in range(repetitions):
        dist.all_reduce(gradients)
    finish(device)
    return (time.perf_counter() - started) / repetitions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("ddl", "gloo", "independent"), required=True)
    parser.add_argument("--model", choices=tuple(PIXELS), default="alexnet")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--batch-size", type=int, default=4, help="images a rank and step")
    parser.add_argument("--num-batches", type=int, default=10, help="timed steps")
    parser.add_argument("--num-warmup-batches", type=int, default=3)
    options = parser.parse_args()

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(1234)
    together = options.backend != "independent"
    rank, size = 0, 1
    device = device_of(options.device)
    model = network(options.model).to(device)
    if together:
        dist.init_process_group(options.backend)
        rank, size = dist.get_rank(), dist.get_world_size()
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    pixels = PIXELS[options.model]
    images = torch.randn(options.batch_size, 3, pixels, pixels, device=device)
    labels = torch.randint(CLASSES, (options.batch_size,), device=device)
    loss_of = nn.CrossEntropyLoss()

    def steps(count: int) -> float:
        """Trains so many steps and returns the seconds; all ranks start together."""
        if together:
            dist.barrier()
        started = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad(set_to_none=False)
            loss_of(model(images), labels).backward()
            optimizer.step()
        finish(device)
        return time.perf_counter() - started

    steps(options.num_warmup_batches)
    seconds = steps(options.num_batches)
    alone = exchange_alone(model, 3, device) if together else 0.0
    if rank == 0:
        if together:
            print(f"exchange alone sec: {alone:.4f}")
        speed = size * options.num_batches * options.batch_size / seconds
        print(f"total images/sec: {speed:.2f}", flush=True)
    if together:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
