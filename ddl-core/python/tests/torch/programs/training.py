"""Trains in every way that torch distributes, and compares with one process that has the whole batch."""

import copy
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from _cases import refused, run
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("ddl", init_method="env://")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
BATCH, STEPS = 24, 6
FEATURES, CLASSES = 12, 5


def model(dtype: torch.dtype = torch.float64, sparse: bool = False) -> nn.Module:
    """The same on all ranks."""
    torch.manual_seed(5)
    first: nn.Module = nn.Linear(FEATURES, 40)
    if sparse:
        first = nn.EmbeddingBag(FEATURES, 40, mode="sum", sparse=True)
    return nn.Sequential(first, nn.Tanh(), nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, CLASSES)).to(dtype)


def batches(
    dtype: torch.dtype = torch.float64, words: bool = False
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(STEPS, BATCH, FEATURES, generator=generator, dtype=torch.float64).to(dtype)
    if words:
        inputs = torch.randint(0, FEATURES, (STEPS, BATCH, 6), generator=generator)
    labels = torch.randint(0, CLASSES, (STEPS, BATCH), generator=generator)
    return list(zip(inputs, labels, strict=True))


def mine(batch: torch.Tensor) -> torch.Tensor:
    return batch[RANK::SIZE]


def loss_of(network: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(network(inputs), labels)


def momentum(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.3, momentum=0.9)  # type: ignore[arg-type]


def alone(network: nn.Module, data: list[tuple[torch.Tensor, torch.Tensor]], optimizer=momentum) -> nn.Module:
    """The reference: whole batches in one process, without torch.distributed."""
    network = copy.deepcopy(network)
    steps = optimizer(network.parameters())
    for inputs, labels in data:
        steps.zero_grad()
        loss_of(network, inputs, labels).backward()
        steps.step()
    return network


def train(
    network: nn.Module, data: list[tuple[torch.Tensor, torch.Tensor]], steps: torch.optim.Optimizer
) -> None:
    for inputs, labels in data:
        steps.zero_grad()
        loss_of(network, mine(inputs), mine(labels)).backward()
        steps.step()


def same(found: dict[str, torch.Tensor], wanted: nn.Module, tolerance: float = 1e-9) -> None:
    start = dict(model(next(wanted.parameters()).dtype).named_parameters())
    for name, parameter in wanted.named_parameters():
        torch.testing.assert_close(found[name].detach(), parameter.detach(), rtol=tolerance, atol=tolerance)
        if name in start and start[name].shape == parameter.shape:
            assert (parameter - start[name]).abs().max() > 5 * tolerance, f"{name} has hardly moved"


def ddp() -> None:
    """Small buckets: several are under way during a backward pass. One rank starts from other weights."""
    network = model()
    if RANK > 0:
        for parameter in network.parameters():
            parameter.data += 1
    parallel = DistributedDataParallel(network, bucket_cap_mb=0.005)
    train(parallel, batches(), momentum(parallel.parameters()))
    same(dict(network.named_parameters()), alone(model(), batches()))


def bf16_compress(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """torch refuses its hook by name wherever there is no NCCL, although it works."""
    return default_hooks.bf16_compress_hook(state, bucket)  # type: ignore[arg-type]


def ddp_hooks() -> None:
    hooks = ((default_hooks.fp16_compress_hook, 5e-4), (bf16_compress, 4e-3))
    for hook, tolerance in hooks:
        network = model(torch.float32)
        parallel = DistributedDataParallel(network, bucket_cap_mb=0.005)
        parallel.register_comm_hook(None, hook)
        train(parallel, batches(torch.float32), momentum(parallel.parameters()))
        same(dict(network.named_parameters()), alone(model(torch.float32), batches(torch.float32)), tolerance)


def ddp_accumulates() -> None:
    """Two halves of each share of a batch, the first without communication."""
    network = model()
    parallel = DistributedDataParallel(network)
    steps = momentum(parallel.parameters())
    for inputs, labels in batches():
        steps.zero_grad()
        halves = list(zip(mine(inputs).chunk(2), mine(labels).chunk(2), strict=True))
        with parallel.no_sync():
            (loss_of(parallel, *halves[0]) / 2).backward()
        (loss_of(parallel, *halves[1]) / 2).backward()
        steps.step()
    same(dict(network.named_parameters()), alone(model(), batches()))


def ddp_sparse() -> None:
    """Gradients of an embedding, of the rows that this rank's share has."""
    network = model(sparse=True)
    parallel = DistributedDataParallel(network)
    train(parallel, batches(words=True), torch.optim.SGD(parallel.parameters(), lr=0.3))
    wanted = alone(
        model(sparse=True), batches(words=True), lambda parameters: torch.optim.SGD(parameters, lr=0.3)
    )
    same(dict(network.named_parameters()), wanted)


def zero() -> None:
    network = model()
    parallel = DistributedDataParallel(network)
    steps = ZeroRedundancyOptimizer(parallel.parameters(), torch.optim.Adam, lr=0.01)
    train(parallel, batches(), steps)
    wanted = alone(model(), batches(), lambda parameters: torch.optim.Adam(parameters, lr=0.01))
    same(dict(network.named_parameters()), wanted)
    if SIZE > 1:
        assert len(steps.optim.state) < len(list(network.parameters()))


def fsdp1() -> None:
    sharded = FullyShardedDataParallel(model(), device_id=torch.device("cpu"), use_orig_params=True)
    train(sharded, batches(), torch.optim.SGD(sharded.parameters(), lr=0.3, momentum=0.9))
    with FullyShardedDataParallel.summon_full_params(sharded):
        found = {name: value.detach().clone() for name, value in sharded.named_parameters()}
    same(found, alone(model(), batches()))


def fsdp2() -> None:
    """Sharded over all ranks; and, where there are enough, in pairs that are replicas of each other."""
    shapes = [(SIZE,), *([(2, SIZE // 2)] if SIZE % 2 == 0 and SIZE > 2 else [])]
    for shape in shapes:
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
        network = model()
        for layer in (network[0], network[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(network, mesh=mesh)
        train(network, batches(), momentum(network.parameters()))
        found = {name: parameter.full_tensor() for name, parameter in network.named_parameters()}
        same(found, alone(model(), batches()))


def by_hand() -> None:
    """A loop without a wrapper: the same start, disjoint data, gradients averaged, state handed on."""
    import ddl.torch

    network = model()
    if RANK > 0:
        for parameter in network.parameters():
            parameter.data.fill_(3)
    ddl.torch.broadcast_parameters(network)
    steps = momentum(network.parameters())
    data = batches()
    for inputs, labels in data:
        samples = TensorDataset(inputs, labels)
        sampler = ddl.torch.DistributedSampler(samples, shuffle=False)
        loader = DataLoader(samples, batch_size=len(sampler), sampler=sampler)
        (mine_in, mine_out), *more = loader
        assert not more and torch.equal(mine_in, mine(inputs))
        steps.zero_grad()
        loss_of(network, mine_in, mine_out).backward()
        for parameter in network.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        steps.step()
    wanted = alone(model(), data)
    same(dict(network.named_parameters()), wanted)
    # as if only rank 0 had a checkpoint
    kept = steps if RANK == 0 else torch.optim.SGD(network.parameters(), lr=9.0)
    ddl.torch.broadcast_optimizer_state(kept)
    assert kept.param_groups[0]["momentum"] == 0.9 and kept.param_groups[0]["lr"] == 0.3
    buffers = [kept.state[parameter]["momentum_buffer"] for parameter in network.parameters()]
    for buffer in buffers:
        every = [torch.empty_like(buffer) for _ in range(SIZE)]
        dist.all_gather(every, buffer)
        assert all(torch.equal(other, buffer) for other in every) and buffer.abs().max() > 0


def other_models() -> None:
    import ddl.torch

    network = nn.Linear(3, 4 if RANK == 0 else 5)
    if SIZE == 1:
        return
    if RANK == 0:
        refused(ValueError, "", lambda: ddl.torch.broadcast_parameters(network))
    else:
        words = "weight: torch.float32 of shape [5, 3] on rank"
        refused(ValueError, words, lambda: ddl.torch.broadcast_parameters(network))


CASES: list[Callable[[], None]] = [
    *(ddp, ddp_hooks, ddp_accumulates, ddp_sparse, zero, fsdp1, fsdp2, by_hand, other_models)
]
if __name__ == "__main__":
    wanted = sys.argv[1:]
    run(case for case in CASES if not wanted or case.__name__ in wanted)
