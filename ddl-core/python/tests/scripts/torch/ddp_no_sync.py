"""Accumulation in no_sync, a GradScaler, clipping and averaged weights: a trainer of 2022."""

import contextlib
import copy
import os
from dataclasses import dataclass, field
from datetime import timedelta

import digits
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class TrainingConfig:
    gradient_accumulation_steps: int = 2
    learning_rate: float = 3e-3
    grad_norm_clip: float = 1.0
    ema_decay: float = 0.9
    max_steps: int = 40
    losses: list = field(default_factory=list)


class Block(nn.Module):
    def __init__(self, n_embd):
        super().__init__()
        self.ln = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 2 * n_embd), nn.GELU(), nn.Linear(2 * n_embd, n_embd))

    def forward(self, x):
        return x + self.mlp(self.ln(x))


def setup():
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return False
    dist.init_process_group("ddl", timeout=timedelta(minutes=2))
    return True


@torch.no_grad()
def update_ema(ema, model, decay):
    for shadow, parameter in zip(ema.parameters(), model.parameters(), strict=True):
        shadow.lerp_(parameter, 1.0 - decay)


def main(config):
    ddp = setup()
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if ddp else (0, 1)
    torch.manual_seed(1337 + rank)
    raw_model = nn.Sequential(nn.Linear(64, 32), Block(32), Block(32), nn.Linear(32, 10))
    model = raw_model
    if ddp:
        model = DDP(raw_model, bucket_cap_mb=0.01, gradient_as_bucket_view=True, broadcast_buffers=False)
    ema = copy.deepcopy(raw_model)
    optimizer = torch.optim.AdamW(
        raw_model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), eps=1e-4
    )
    # scales by powers of two, which round nothing
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=15)
    images, labels = map(torch.from_numpy, digits.load())
    micro = digits.BATCH // world_size // config.gradient_accumulation_steps
    for step in range(config.max_steps):
        rows = digits.part(step, rank, world_size)
        X, Y = images[rows].split(micro), labels[rows].split(micro)
        lossf = torch.zeros(())
        for micro_step in range(config.gradient_accumulation_steps):
            last = micro_step == config.gradient_accumulation_steps - 1
            maybe_sync = contextlib.nullcontext() if last or not ddp else model.no_sync()
            with maybe_sync:
                loss = nn.functional.cross_entropy(model(X[micro_step]), Y[micro_step])
                loss = loss / config.gradient_accumulation_steps
                scaler.scale(loss).backward()
            lossf += loss.detach()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_norm_clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        update_ema(ema, raw_model, config.ema_decay)
        if ddp:
            dist.reduce(lossf, dst=0, op=dist.ReduceOp.SUM)
        if rank == 0:
            config.losses.append(lossf.item() / world_size)
    logs = [config.losses]
    if ddp:
        dist.broadcast_object_list(logs, src=0)
    assert scaler.get_scale() == 2.0**12, scaler.get_scale()
    weights = {name: value.numpy() for name, value in raw_model.state_dict().items()}
    weights |= {f"ema.{name}": value.numpy() for name, value in ema.state_dict().items()}
    digits.save(rank, weights | {"losses": torch.tensor(logs[0]).numpy()}, logs[0])


if __name__ == "__main__":
    main(TrainingConfig())
