"""Trains on the device of the program's tensors, and compares with the processor that has the whole batch."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from _cases import run
from _device import DEVICE, init_process_group
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

init_process_group()
RANK, SIZE = dist.get_rank(), dist.get_world_size()
GENERATOR = torch.Generator("cpu").manual_seed(7)
INPUTS = torch.randn(4, 24, 12, generator=GENERATOR, dtype=torch.float64, device="cpu")
LABELS = torch.randint(0, 5, (4, 24), generator=GENERATOR, device="cpu")


def model() -> nn.Sequential:
    """The same on all ranks, in the host's memory."""
    with torch.device("cpu"):
        torch.default_generator.manual_seed(5)
        layers = [nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 5)]
        return nn.Sequential(*layers).double()


def train(network: nn.Module, inputs: Iterable[torch.Tensor], labels: Iterable[torch.Tensor]) -> None:
    steps = torch.optim.SGD(network.parameters(), lr=0.3, momentum=0.9)
    for batch, wanted in zip(inputs, labels, strict=True):
        steps.zero_grad()
        nn.functional.cross_entropy(network(batch), wanted).backward()
        steps.step()


def train_share(network: nn.Module) -> None:
    train(
        network, INPUTS[:, RANK::SIZE].contiguous().to(DEVICE), LABELS[:, RANK::SIZE].contiguous().to(DEVICE)
    )


def same(found: dict[str, torch.Tensor]) -> None:
    wanted = model()
    train(wanted, INPUTS, LABELS)
    for name, parameter in wanted.named_parameters():
        torch.testing.assert_close(found[name].detach().cpu(), parameter.detach(), rtol=1e-9, atol=1e-9)


def ddp() -> None:
    """Small buckets: several are under way during a backward pass."""
    network = model().to(DEVICE)
    train_share(DistributedDataParallel(network, bucket_cap_mb=0.005))
    same(dict(network.named_parameters()))


def ddp_hook() -> None:
    """Through a future and its callbacks, which take the streams for complete."""
    network = model().to(DEVICE)
    parallel = DistributedDataParallel(network, bucket_cap_mb=0.005)
    parallel.register_comm_hook(None, default_hooks.allreduce_hook)
    train_share(parallel)
    same(dict(network.named_parameters()))


def ddp_compiled() -> None:
    network = model().to(DEVICE)
    train_share(torch.compile(DistributedDataParallel(network), backend="aot_eager"))
    same(dict(network.named_parameters()))


def fsdp2() -> None:
    network = model().to(DEVICE)
    mesh = init_device_mesh(DEVICE, (SIZE,))
    for layer in (network[0], network[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    train_share(network)
    same({name: parameter.full_tensor() for name, parameter in network.named_parameters()})


def fsdp2_on_rows() -> None:
    """Layers that are sharded by groups of their own, among replicas."""
    network = model().to(DEVICE)
    mesh = init_device_mesh(DEVICE, (1, SIZE), mesh_dim_names=("replicas", "shards"))
    other = init_device_mesh(DEVICE, (SIZE, 1), mesh_dim_names=("replicas", "shards"))
    fully_shard(network[0], mesh=mesh)
    fully_shard(network[2], mesh=other)
    fully_shard(network[4], mesh=init_device_mesh(DEVICE, (SIZE,)))
    train_share(network)
    same({name: parameter.full_tensor() for name, parameter in network.named_parameters()})


def functional() -> None:
    """What torch.compile puts into a graph."""
    from torch.distributed import _functional_collectives as collectives

    tensor = torch.full((3000,), RANK + 1.0, device="cpu").to(DEVICE)
    total = collectives.all_reduce(tensor, "sum", dist.group.WORLD)
    assert (total * 2).cpu().eq(SIZE * (SIZE + 1)).all() and tensor.cpu().eq(RANK + 1).all()


def functional_compiled() -> None:
    from torch.distributed import _functional_collectives as collectives

    @torch.compile(backend="aot_eager", fullgraph=True)
    def twice_the_sum(tensor: torch.Tensor) -> torch.Tensor:
        total = collectives.all_reduce(tensor, "sum", dist.group.WORLD)
        parts = collectives.reduce_scatter_tensor(total, "sum", 0, dist.group.WORLD)
        return collectives.all_gather_tensor(parts, 0, dist.group.WORLD) * 2

    tensor = torch.full((3000,), RANK + 1.0, device="cpu").to(DEVICE)
    assert twice_the_sum(tensor).cpu().eq(SIZE * SIZE * (SIZE + 1)).all() and tensor.cpu().eq(RANK + 1).all()


if __name__ == "__main__":
    run([ddp, ddp_hook, ddp_compiled, fsdp2, fsdp2_on_rows, functional, functional_compiled])
