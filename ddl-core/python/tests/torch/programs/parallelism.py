"""The rest of torch.distributed on the backend ddl: compiled DDP, DTensor, pipelines, hooks, Join,
checkpoints.

As in training.py, whose model and data these cases use, the reference is one process with the whole batch.
"""

import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
from _cases import refused, run
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from training import RANK, SIZE, alone, batches, loss_of, mine, model, momentum, same, train

FOLDER = Path(sys.argv.pop(1)) if len(sys.argv) > 1 and "/" in sys.argv[1] else None


def compiled_ddp() -> None:
    """DDP inside torch.compile: gradients go through the backend as without it."""
    network = model()
    # the backend that needs no compiler of C++
    parallel = torch.compile(DistributedDataParallel(network), backend="aot_eager")
    train(parallel, batches(), momentum(parallel.parameters()))
    same(dict(network.named_parameters()), alone(model(), batches()))


def compiled_collectives() -> None:
    """Functional collectives, traced into one graph and eager."""

    def both(tensor: torch.Tensor) -> torch.Tensor:
        total = functional.all_reduce(tensor, "sum", dist.group.WORLD)
        gathered = functional.all_gather_tensor(total[:2], 0, dist.group.WORLD)
        part = functional.reduce_scatter_tensor(gathered, "avg", 0, dist.group.WORLD)
        return total.sum() + part

    tensor = torch.arange(4.0) + RANK
    total = torch.arange(4.0) * SIZE + SIZE * (SIZE - 1) / 2
    for call in (both, torch.compile(both, backend="aot_eager", fullgraph=True)):
        torch.testing.assert_close(torch.as_tensor(call(tensor)), total.sum() + total[:2])


def dtensors() -> None:
    """Every redistribution of a tensor that does not divide evenly gives back the same numbers."""
    mesh = init_device_mesh("cpu", (SIZE,))
    whole = torch.arange(7 * 5, dtype=torch.float64).reshape(7, 5)
    for start in (Shard(0), Shard(1), Replicate()):
        tensor = distribute_tensor(whole, mesh, [start])
        for end in (Shard(1), Shard(0), Replicate()):
            assert torch.equal(tensor.redistribute(mesh, [end]).full_tensor(), whole)
        product = tensor @ distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])
        torch.testing.assert_close(product.full_tensor(), whole @ whole.t())
    partial = DTensor.from_local(whole * (RANK + 1), mesh, [Partial()])
    assert torch.equal(partial.full_tensor(), whole * (SIZE * (SIZE + 1) // 2))


def tensor_parallel() -> None:
    """Columns, then rows, then columns with a loss that is computed in shards."""
    mesh = init_device_mesh("cpu", (SIZE,))

    def wide() -> nn.Module:
        """With classes that the ranks share evenly."""
        network = model()
        network.append(nn.Linear(5, 2 * SIZE).double())
        return network

    network = wide()
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel(), "5": ColwiseParallel(use_local_output=False)}
    parallelize_module(network, mesh, plan)
    steps = momentum(network.parameters())
    for inputs, labels in batches():
        steps.zero_grad()
        with loss_parallel():
            nn.functional.cross_entropy(network(inputs), labels).backward()
        steps.step()
    found = {
        name: value.full_tensor() if isinstance(value, DTensor) else value
        for name, value in network.named_parameters()
    }
    same(found, alone(wide(), batches()))


def two_dimensions() -> None:
    """FSDP2 over one dimension of a mesh and tensor parallelism over the other."""
    if SIZE % 2:
        return
    mesh = init_device_mesh("cpu", (SIZE // 2, 2), mesh_dim_names=("data", "tensor"))
    network = model()
    parallelize_module(network, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(network, mesh=mesh["data"])
    place, places = mesh["data"].get_local_rank(), mesh["data"].size()
    steps = momentum(network.parameters())
    for inputs, labels in batches():
        steps.zero_grad()
        loss_of(network, inputs[place::places], labels[place::places]).backward()
        steps.step()
    found = {name: parameter.full_tensor() for name, parameter in network.named_parameters()}
    same(found, alone(model(), batches()))


def pipeline() -> None:
    """A stage on each rank, with both schedules of one stage a rank."""
    layers = 2 * SIZE
    for schedule_of in (ScheduleGPipe, Schedule1F1B):
        torch.manual_seed(11)
        width = 6
        whole = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)])
        whole.double()
        stage_module = whole[2 * RANK : 2 * RANK + 2]
        stage = PipelineStage(stage_module, RANK, SIZE, torch.device("cpu"))
        schedule = schedule_of(stage, n_microbatches=2 * SIZE, loss_fn=nn.functional.mse_loss)
        inputs = torch.randn(8 * SIZE, width, dtype=torch.float64)
        wanted = torch.randn(8 * SIZE, width, dtype=torch.float64)
        if RANK == 0 and SIZE > 1:
            schedule.step(inputs)
        else:
            words = (inputs,) if RANK == 0 else ()
            losses: list[torch.Tensor] = []
            schedule.step(*words, target=wanted, losses=losses)
            assert len(losses) == (2 * SIZE if RANK == SIZE - 1 else 0)
        found = [parameter.grad.clone() for parameter in stage_module.parameters()]
        whole.zero_grad()
        nn.functional.mse_loss(whole(inputs), wanted).backward()
        for gradient, parameter in zip(found, stage_module.parameters(), strict=True):
            torch.testing.assert_close(gradient, parameter.grad)


def local_sgd() -> None:
    """Steps of its own on every rank, and the mean of the weights after each third one."""
    network = model()
    parallel = DistributedDataParallel(network)
    hook_state = post_localSGD_hook.PostLocalSGDState(
        dist.group.WORLD, None, start_localSGD_iter=0, post_local_gradient_allreduce=False
    )
    parallel.register_comm_hook(hook_state, post_localSGD_hook.post_localSGD_hook)
    averager = PeriodicModelAverager(period=3, warmup_steps=0)
    train(parallel, batches(), PostLocalSGDOptimizer(momentum(parallel.parameters()), averager))
    # the same in one process, rank after rank
    replicas = [model() for _ in range(SIZE)]
    optimizers = [momentum(replica.parameters()) for replica in replicas]
    for number, (inputs, labels) in enumerate(batches()):
        for rank, (replica, steps) in enumerate(zip(replicas, optimizers, strict=True)):
            steps.zero_grad()
            part = slice(rank, None, SIZE)
            loss_of(replica, inputs[part], labels[part]).backward()
            steps.step()
        if number % 3 == 0:
            for together in zip(*(replica.parameters() for replica in replicas), strict=True):
                mean = torch.stack([one.detach() for one in together]).mean(0)
                for one in together:
                    one.data.copy_(mean)
    found = dict(network.named_parameters())
    for name, parameter in replicas[RANK].named_parameters():
        torch.testing.assert_close(found[name], parameter, rtol=1e-9, atol=1e-9)


def joined() -> None:
    """Ranks with more batches than others go on; those that have ended shadow them."""
    network = model()
    parallel = DistributedDataParallel(network, bucket_cap_mb=0.005)
    steps = momentum(parallel.parameters())
    own = batches()[: 3 + RANK]
    with Join([parallel], divide_by_initial_world_size=False):
        for inputs, labels in own:
            steps.zero_grad()
            loss_of(parallel, mine(inputs), mine(labels)).backward()
            steps.step()
    # the last rank has taken all steps; each is the mean over the ranks that were still there
    reference = model()
    wanted = momentum(reference.parameters())
    for number, (inputs, labels) in enumerate(batches()[: 3 + SIZE - 1]):
        there = [rank for rank in range(SIZE) if number < 3 + rank]
        wanted.zero_grad()
        for rank in there:
            part = slice(rank, None, SIZE)
            (loss_of(reference, inputs[part], labels[part]) / len(there)).backward()
        wanted.step()
    same(dict(network.named_parameters()), reference)


def hooks() -> None:
    """Compressed and plain hooks of torch's own; what it refuses without NCCL it refuses in words."""
    network = DistributedDataParallel(model(torch.float32))
    if not dist.is_nccl_available():
        words = "BF16 all reduce communication hook required CUDA 11+ and NCCL 2.10+"
        refused(TypeError, words, lambda: network.register_comm_hook(None, default_hooks.bf16_compress_hook))
    for hook in (
        default_hooks.allreduce_hook,
        default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook),
    ):
        network = model(torch.float32)
        parallel = DistributedDataParallel(network)
        parallel.register_comm_hook(dist.group.WORLD, hook)
        train(parallel, batches(torch.float32), momentum(parallel.parameters()))
        same(dict(network.named_parameters()), alone(model(torch.float32), batches(torch.float32)), 5e-4)


def power_sgd() -> None:
    """Low-rank gradients: the hook waits, in a callback, for another call of its group. As on gloo."""
    networks = []
    for backend in ("ddl", "gloo"):
        group = dist.new_group(backend=backend)
        networks.append(model(torch.float32))
        parallel = DistributedDataParallel(networks[-1], process_group=group)
        state = powerSGD_hook.PowerSGDState(group, start_powerSGD_iter=2, min_compression_rate=0.5)
        parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        train(parallel, batches(torch.float32), momentum(parallel.parameters()))
        assert state.iter > 2 and state.compression_stats()[0] > 1
    same(dict(networks[0].named_parameters()), networks[1], 1e-4)


def callbacks() -> None:
    """A callback may wait for a call that was made later, and for one that it makes itself.

    The last rank calls when all others have their callback: a future that is done runs it at once, in the
    thread that was to make the later call.
    """
    for last in {0, SIZE - 1}:
        _callbacks(last, dist.new_group(backend="gloo"))


def _callbacks(last: int, others: dist.ProcessGroup) -> None:
    first, second, third = (torch.full((5,), float(RANK + add)) for add in (0, 1, 2))
    expected = [sum(range(SIZE)) + add * SIZE for add in (0, 1, 2)]
    started = threading.Event()

    def nested(future: Any) -> float:
        assert started.wait(60)
        return float(future.wait()[0][0] + later.get_future().wait()[0][0])

    def own(future: Any) -> float:
        dist.all_reduce(third)
        return float(third[0])

    if last == RANK:
        dist.barrier(group=others)
        waits = dist.all_reduce(first, async_op=True).get_future()
    else:
        waits = dist.all_reduce(first, async_op=True).get_future().then(nested)
        dist.barrier(group=others)
    later = dist.all_reduce(second, async_op=True)
    calls = later.get_future().then(own)
    started.set()
    result = waits.wait()
    assert (float(result[0][0]) if last == RANK else result) == expected[0] + (last != RANK) * expected[1]
    assert calls.wait() == expected[2]


def meshes() -> None:
    """Submeshes are groups of ddl with their own ranks; subgroups by size and by enumeration as well."""
    if SIZE % 2 == 0:
        mesh = init_device_mesh("cpu", (SIZE // 2, 2), mesh_dim_names=("a", "b"))
        for name, size, ranks in (
            ("a", SIZE // 2, range(RANK % 2, SIZE, 2)),
            ("b", 2, range(RANK - RANK % 2, SIZE)),
        ):
            group = mesh[name].get_group()
            assert dist.get_backend(group) == "ddl" and dist.get_world_size(group) == size
            value = torch.tensor([float(RANK)])
            dist.all_reduce(value, group=group)
            assert value.item() == sum(list(ranks)[:size])
        flat = mesh._flatten().get_group()
        value = torch.ones(1)
        dist.all_reduce(value, group=flat)
        assert value.item() == SIZE
    group, _ = dist.new_subgroups(1)
    assert dist.get_backend(group) == "ddl" and dist.get_world_size(group) == 1
    group, _ = dist.new_subgroups_by_enumeration([[rank] for rank in reversed(range(SIZE))])
    assert dist.get_process_group_ranks(group) == [RANK]
    words = "No device associated with the default pg"
    refused(RuntimeError, words, lambda: dist.split_group(split_ranks=[list(range(SIZE))]))


def _sharded() -> tuple[nn.Module, torch.optim.Optimizer]:
    network = model()
    fully_shard(network, mesh=init_device_mesh("cpu", (SIZE,)))
    return network, torch.optim.Adam(network.parameters(), lr=0.01)


def saves() -> None:
    """Half of the training, and a sharded checkpoint."""
    network, steps = _sharded()
    train(network, batches()[:3], steps)
    weights, state = get_state_dict(network, steps)
    checkpoint.save({"model": weights, "optimizer": state}, checkpoint_id=FOLDER)


def loads() -> None:
    """The other half, with another number of ranks than that which saved."""
    network, steps = _sharded()
    weights, state = get_state_dict(network, steps)
    checkpoint.load({"model": weights, "optimizer": state}, checkpoint_id=FOLDER)
    set_state_dict(network, steps, model_state_dict=weights, optim_state_dict=state)
    train(network, batches()[3:], steps)
    found = {name: parameter.full_tensor() for name, parameter in network.named_parameters()}
    same(found, alone(model(), batches(), lambda parameters: torch.optim.Adam(parameters, lr=0.01)))


def saves_asynchronously() -> None:
    """The checkpoint is written while training goes on, through groups that a thread of torch uses."""
    network, steps = _sharded()
    train(network, batches()[:3], steps)
    weights, state = get_state_dict(network, steps)
    written = checkpoint.async_save(
        {"model": weights, "optimizer": state},
        checkpoint_id=FOLDER,
        process_group=dist.new_group(backend="ddl"),
    )
    train(network, batches()[3:], steps)
    written.result(timeout=60)


CASES: list[Callable[[], None]] = [
    *(compiled_ddp, compiled_collectives, dtensors, tensor_parallel, two_dimensions, pipeline),
    *(local_sgd, joined, hooks, power_sgd, callbacks, meshes),
]
ON_FILES: list[Callable[[], None]] = [saves, loads, saves_asynchronously]
if __name__ == "__main__":
    # torch's own deprecations, of what its classes call themselves
    warnings.simplefilter("ignore")
    wanted = sys.argv[1:]
    run(case for case in (*CASES, *ON_FILES) if case.__name__ in wanted or (not wanted and case in CASES))
