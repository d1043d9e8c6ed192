"""What `horovod.torch` offers beside the operations of operations.py, compared with numpy or one process."""

import tempfile
import time
from pathlib import Path

import horovod.torch as hvd
import numpy as np
import torch
from _cases import run
from horovod.torch import elastic
from torch import nn

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
assert SIZE == 2
TYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32)


def who() -> None:
    assert hvd.is_initialized() and issubclass(hvd.HorovodInternalError, RuntimeError)
    assert (hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()) == (RANK, 2, 0, 1)
    built = [hvd.ddl_built(), hvd.mpi_built(), hvd.mpi_enabled(), hvd.mpi_threads_supported()]
    without = [hvd.gloo_built(), hvd.gloo_enabled(), hvd.nccl_built(), hvd.ccl_built()]
    assert all(built) and not any([*without, hvd.cuda_built(), hvd.rocm_built()])
    assert hvd.global_process_set.included() and hvd.global_process_set.size() == 2
    hvd.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", hvd.__file__, "mpi_lib_v2")


def gathers() -> None:
    for kind in (*TYPES, torch.float64):
        mine = torch.full((RANK + 1, 2), RANK).to(kind)
        wanted = torch.tensor([[0, 0], [1, 1], [1, 1]]).to(kind)
        assert torch.equal(hvd.allgather(mine, name=f"gather {kind}"), wanted)
        assert torch.equal(hvd.synchronize(hvd.allgather_async(mine)), wanted)
        assert torch.equal(hvd.broadcast(mine[:1], 1, name=f"broadcast {kind}"), wanted[1:2])
    first, second = hvd.grouped_allgather([torch.ones(2), torch.ones(RANK + 1)])
    assert (len(first), len(second)) == (4, 3)
    assert len(hvd.synchronize(hvd.grouped_allgather_async([torch.ones(2)]))[0]) == 4


def reduce_scatters() -> None:
    numbers = torch.arange(5.0)
    part = slice(0, 3) if RANK == 0 else slice(3, 5)
    assert torch.equal(hvd.reducescatter(numbers, op=hvd.Sum), 2 * numbers[part])
    assert torch.equal(hvd.synchronize(hvd.reducescatter_async(numbers)), numbers[part])
    four, six = hvd.grouped_reducescatter([torch.ones(4), torch.ones(6)], op=hvd.Sum)
    assert four.tolist() == [2.0] * 2 and six.tolist() == [2.0] * 3
    assert len(hvd.synchronize(hvd.grouped_reducescatter_async([torch.ones(4)]))[0]) == 2


def all_to_all() -> None:
    received, splits = hvd.alltoall(torch.arange(3.0) + 10 * RANK, torch.tensor([1, 2], dtype=torch.int32))
    assert received.tolist() == ([0, 10] if RANK == 0 else [1, 2, 11, 12])
    assert splits.tolist() == ([1, 1] if RANK == 0 else [2, 2])
    even, _ = hvd.synchronize(hvd.alltoall_async(torch.arange(4.0) + 10 * RANK))
    assert even.tolist() == ([0, 1, 10, 11] if RANK == 0 else [2, 3, 12, 13])


def started() -> None:
    mine = torch.full((3,), RANK + 1.0)
    handle = hvd.allreduce_async(mine, op=hvd.Sum)
    while not hvd.poll(handle):
        pass
    assert hvd.synchronize(handle).tolist() == [3.0] * 3
    assert hvd.synchronize(hvd.allreduce_async_(mine, op=hvd.Max)).tolist() == mine.tolist() == [2.0] * 3
    assert hvd.synchronize(hvd.broadcast_async(torch.tensor([RANK]), 1)).tolist() == [1]
    own = torch.tensor([float(RANK)])
    hvd.synchronize(hvd.broadcast_async_(own, 1))
    assert own.tolist() == [1.0] == hvd.broadcast_(torch.tensor([float(RANK)]), 1).tolist()
    handles = [
        hvd.grouped_allreduce_async([torch.ones(2)], op=hvd.Sum),
        hvd.grouped_allreduce_async_([torch.ones(2)], op=hvd.Sum),
    ]
    assert [hvd.synchronize(handle)[0].tolist() for handle in handles] == [[2.0] * 2] * 2
    grouped = [torch.ones(2), torch.ones(3)]
    hvd.grouped_allreduce_(grouped, op=hvd.Sum)
    assert grouped[1].tolist() == [2.0] * 3
    assert hvd.allreduce(torch.ones(3), compression=hvd.Compression.fp16, op=hvd.Sum).tolist() == [2.0] * 3
    rows = torch.sparse_coo_tensor([[0, RANK + 1]], [1.0, 1.0], (4,), check_invariants=True)
    assert hvd.sparse_allreduce_async(rows, "rows", hvd.Sum)().to_dense().tolist() == [2, 1, 1, 0]
    orthogonal = torch.tensor([1.0, 0.0] if RANK == 0 else [0.0, 2.0])
    assert hvd.allreduce(orthogonal, op=hvd.Adasum).tolist() == [1.0, 2.0]


def objects() -> None:
    assert hvd.broadcast_object({"rank": RANK}, 1) == {"rank": 1}
    assert hvd.allgather_object({"rank": RANK}) == [{"rank": 0}, {"rank": 1}]
    hvd.barrier()


def sets_of_ranks() -> None:
    alone = hvd.add_process_set([1])
    if alone.included():
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=alone).tolist() == [1.0] * 2
    assert hvd.remove_process_set(alone)
    one, other = hvd.add_process_set(hvd.ProcessSet([0])), hvd.add_process_set([1])
    mine = one if RANK == 0 else other
    assert mine.included() and mine.size() == 1 and mine.rank() == 0
    hvd.remove_process_set(one)
    hvd.remove_process_set(other)


def synchronized_batch_normalization() -> None:
    """Of batches of different lengths; the gradients too."""
    for shape, reference in (((9, 3), nn.BatchNorm1d), ((9, 3, 4, 5), nn.BatchNorm2d)):
        for settings in ({}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}):
            torch.manual_seed(3)
            batch, pull = torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)
            mine = slice(0, 5) if RANK == 0 else slice(5, 9)
            layer = hvd.SyncBatchNorm(3, **settings).double()
            alone = reference(3, **settings).double()
            for _ in range(2):
                part, whole = batch[mine].clone().requires_grad_(), batch.clone().requires_grad_()
                results = layer(part), alone(whole)
                np.testing.assert_allclose(results[0].detach(), results[1].detach()[mine], atol=1e-12)
                (results[0] * pull[mine]).sum().backward()
                (results[1] * pull).sum().backward()
                np.testing.assert_allclose(part.grad, whole.grad[mine], atol=1e-12)
            for name, value in alone.state_dict().items():
                np.testing.assert_allclose(layer.state_dict()[name], value, atol=1e-12, err_msg=name)
            for name, parameter in alone.named_parameters():
                summed = hvd.allreduce(dict(layer.named_parameters())[name].grad, op=hvd.Sum)
                np.testing.assert_allclose(summed, parameter.grad, atol=1e-10, err_msg=name)
            layer.eval(), alone.eval()
            np.testing.assert_allclose(layer(batch).detach(), alone(batch).detach(), atol=1e-12)


def timeline_of_a_while() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "timeline.json")
        hvd.start_timeline(str(file))
        for step in range(20):  # It begins and is written in the background.
            hvd.allreduce(torch.ones(2), name=f"shown {step}")
        hvd.stop_timeline()
        end = time.monotonic() + 30
        while RANK == 0 and "shown 19" not in file.read_text():
            assert time.monotonic() < end, file.read_text()[:500]
            time.sleep(0.05)


def elastic_with_the_same_ranks() -> None:
    network = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, network.named_parameters())
    sampler = elastic.ElasticSampler(range(10), shuffle=False)
    state = elastic.TorchState(model=network, optimizer=optimizer, sampler=sampler, epoch=0)
    seen = []

    @elastic.run
    def train(state: elastic.TorchState) -> None:
        while state.epoch < 2:
            for index in list(sampler):
                optimizer.zero_grad()
                network(torch.full((1, 2), float(index))).sum().backward()
                optimizer.step()
                seen.append(index)
            state.epoch += 1
            state.commit()

    train(state)
    assert seen == [RANK, RANK + 2, RANK + 4, RANK + 6, RANK + 8] * 2, seen
    weights = hvd.allgather(network.weight.detach())
    assert torch.equal(weights[0], weights[1])
    before = network.weight.detach().clone()
    with torch.no_grad():
        network.weight.add_(1)
    state.restore()
    assert torch.equal(network.weight, before)


def gathers_in_inference_mode() -> None:
    """Their outputs are resized by Horovod's thread, which is not in the mode."""
    everything = [float(rank) for rank in range(SIZE) for _ in range(SIZE)]
    with torch.inference_mode():
        mine = torch.full((SIZE,), float(RANK))
        assert hvd.allgather(mine).tolist() == everything
        assert [part.tolist() for part in hvd.grouped_allgather([mine, mine])] == [everything] * 2
        assert hvd.alltoall(mine).tolist() == list(range(SIZE))
        assert hvd.allgather_object(RANK) == list(range(SIZE))


def goes_on_behind_a_join() -> None:
    """Ranks with other numbers of calls, with and without names, meet again in calls without a name."""
    for step in range(4 if RANK == 0 else 2):
        hvd.allreduce(torch.ones(2), name=f"step {step}")
        hvd.allreduce(torch.ones(3))
    assert hvd.join() == 0
    for _ in range(3):
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [2.0] * 3
        hvd.barrier()


run(
    [
        *(who, gathers, reduce_scatters, all_to_all, started, objects, sets_of_ranks),
        *(synchronized_batch_normalization, timeline_of_a_while, elastic_with_the_same_ranks),
        gathers_in_inference_mode,
        goes_on_behind_a_join,
    ]
)
