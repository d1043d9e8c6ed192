"""Training steps of PyTorch with DistributedDataParallel, with and without exchange of gradients in turns.

`python -m ddl_validate.gpu.torch_steps FOLDER SETTINGS` on every rank; the protocol is that of ranks. Blocks
of steps alternate within one run, so that both see the same machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import time
from typing import Any

from .rank_report import write_report

_PIXELS = 32


def _network(width: int) -> Any:
    """A convolutional network for images of 32 x 32 pixels."""
    from torch import nn

    layers: list[nn.Module] = []
    channels = 3
    for factor in (1, 2, 4, 8):
        layers += [nn.Conv2d(channels, width * factor, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        channels = width * factor
    features = channels * (_PIXELS // 16) ** 2
    layers += [nn.Flatten(), nn.Linear(features, 8 * width), nn.ReLU(), nn.Linear(8 * width, 10)]
    return nn.Sequential(*layers)


def _same_everywhere(model: Any) -> bool:
    """Whether all ranks have the same parameters."""
    import torch
    import torch.distributed as dist

    total = torch.stack([parameter.detach().double().sum() for parameter in model.parameters()]).cpu()
    lowest, highest = total.clone(), total.clone()
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    return bool(torch.equal(lowest, highest))


def run(settings: dict[str, Any]) -> dict[str, Any]:
    """settings: device "gpu" or "cpu"; width, batch, steps (of a block), blocks (pairs of them)."""
    import ddl
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    local = int(os.environ.get("LOCAL_RANK") or os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or "0")
    gpu = settings["device"] == "gpu"
    device = torch.device("cuda", local % torch.cuda.device_count()) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("ddl")
    torch.manual_seed(1)
    model = DistributedDataParallel(_network(int(settings["width"])).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(100 + dist.get_rank())
    images = torch.randn(int(settings["batch"]), 3, _PIXELS, _PIXELS, device=device)
    labels = torch.randint(10, (len(images),), device=device)
    loss_of = nn.CrossEntropyLoss()

    def finish() -> None:
        if gpu:
            torch.cuda.synchronize(device)

    def block(exchange: bool) -> float:
        """Seconds of a step, the slowest rank's."""
        finish()
        dist.barrier()
        begun = time.perf_counter()
        for _ in range(int(settings["steps"])):
            with contextlib.ExitStack() as stack:
                if not exchange:
                    stack.enter_context(model.no_sync())
                    stack.enter_context(ddl.no_averaging())
                optimizer.zero_grad(set_to_none=False)
                loss_of(model(images), labels).backward()
                optimizer.step()
        finish()
        seconds = torch.tensor([(time.perf_counter() - begun) / int(settings["steps"])])
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        return float(seconds)

    for _ in range(2):
        block(True)
    agreed = _same_everywhere(model)
    exchanged: list[float] = []
    alone: list[float] = []
    for number in range(int(settings["blocks"])):
        for exchange in (True, False) if number % 2 == 0 else (False, True):
            (exchanged if exchange else alone).append(block(exchange))
    shares = [without / with_it for with_it, without in zip(exchanged, alone, strict=True)]
    report = {
        "agreed": agreed,
        "exchanged": exchanged,
        "alone": alone,
        "kept": statistics.median(shares),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "torch": torch.__version__,
    }
    dist.destroy_process_group()
    return report


def main(arguments: list[str]) -> int:
    folder, settings = arguments
    return 1 if write_report(folder, lambda: run(json.loads(settings))) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
