"""Trains with Horovod's optimizer for PyTorch, and compares with one process that has the whole batch."""

import copy
import sys
from collections.abc import Callable

import horovod.torch as hvd
import torch
from _cases import ddl_calls, run
from torch import nn

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
BATCH, STEPS, FEATURES, CLASSES = 24, 6, 12, 5


def model(sparse: bool = False) -> nn.Module:
    """The same on all ranks."""
    torch.manual_seed(5)
    first: nn.Module = nn.Linear(FEATURES, 40)
    if sparse:
        first = nn.EmbeddingBag(FEATURES, 40, mode="sum", sparse=True)
    return nn.Sequential(first, nn.Tanh(), nn.Linear(40, CLASSES)).double()


def batches(words: bool = False) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(STEPS, BATCH, FEATURES, generator=generator, dtype=torch.float64)
    if words:
        inputs = torch.randint(0, FEATURES, (STEPS, BATCH, 6), generator=generator)
    labels = torch.randint(0, CLASSES, (STEPS, BATCH), generator=generator)
    return list(zip(inputs, labels, strict=True))


def optimizer_of(network: nn.Module, momentum: float = 0.9) -> torch.optim.Optimizer:
    return torch.optim.SGD(network.parameters(), lr=0.3, momentum=momentum)


def step(
    network: nn.Module, steps: torch.optim.Optimizer, inputs: torch.Tensor, labels: torch.Tensor
) -> None:
    steps.zero_grad()
    nn.functional.cross_entropy(network(inputs), labels).backward()
    steps.step()


def same(network: nn.Module, words: bool = False, momentum: float = 0.9, tolerance: float = 1e-9) -> None:
    """Equal to what one process reaches without Horovod, and far from where it began."""
    alone = model(words)
    steps = optimizer_of(alone, momentum)
    for inputs, labels in batches(words):
        step(alone, steps, inputs, labels)
    for found, wanted, start in zip(
        network.parameters(), alone.parameters(), model(words).parameters(), strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
        assert (wanted - start).abs().max() > 5 * tolerance


def distributed_optimizer() -> None:
    """Each rank starts from other weights and has its share of each batch."""
    network = model()
    for parameter in network.parameters():
        parameter.data += RANK
    hvd.broadcast_parameters(network.state_dict(), root_rank=0)
    steps = hvd.DistributedOptimizer(optimizer_of(network), named_parameters=network.named_parameters())
    hvd.broadcast_optimizer_state(steps, root_rank=0)
    before = ddl_calls()
    for inputs, labels in batches():
        step(network, steps, inputs[RANK::SIZE], labels[RANK::SIZE])
    assert SIZE == 1 or "by_mpi" in sys.argv or ddl_calls() - before >= STEPS
    same(network)


def compressed() -> None:
    network = model()
    steps = hvd.DistributedOptimizer(
        optimizer_of(network), network.named_parameters(), compression=hvd.Compression.fp16
    )
    for inputs, labels in batches():
        step(network, steps, inputs[RANK::SIZE], labels[RANK::SIZE])
    same(network, tolerance=2e-3)


def accumulated() -> None:
    """An update for two halves of each share."""
    network = model()
    steps = hvd.DistributedOptimizer(
        optimizer_of(network), network.named_parameters(), backward_passes_per_step=2
    )
    for inputs, labels in batches():
        steps.zero_grad()
        for half in (0, 1):
            mine = slice(RANK + half * SIZE, None, 2 * SIZE)
            (nn.functional.cross_entropy(network(inputs[mine]), labels[mine]) / 2).backward()
        steps.step()
    same(network)


def sparse() -> None:
    """Gradients of an embedding, of the rows that this rank's share has."""
    network = model(sparse=True)
    steps = hvd.DistributedOptimizer(optimizer_of(network, 0), network.named_parameters())
    for inputs, labels in batches(words=True):
        step(network, steps, inputs[RANK::SIZE], labels[RANK::SIZE])
    same(network, words=True, momentum=0)


def state_goes_on() -> None:
    """As if only rank 0 had a checkpoint: momentum and learning rate reach the others."""
    network = model()
    steps = optimizer_of(network)
    if RANK == 0:
        for inputs, labels in batches():
            step(network, steps, inputs, labels)
    else:
        steps.param_groups[0]["lr"] = 9.0
    hvd.broadcast_parameters(network.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(steps, root_rank=0)
    assert steps.param_groups[0]["lr"] == 0.3
    same(network)
    for parameter in network.parameters():
        buffer = steps.state[parameter]["momentum_buffer"]
        mean = hvd.allreduce(copy.deepcopy(buffer))
        torch.testing.assert_close(mean, buffer)
        assert buffer.abs().max() > 0


def equal(network: nn.Module, name: str) -> None:
    """On all ranks."""
    for parameter in network.parameters():
        for other in hvd.allgather(parameter.detach()[None]):
            torch.testing.assert_close(other, parameter.detach(), rtol=0, atol=0, msg=name)


def resumed() -> None:
    """Rank 0 alone loads a checkpoint, as in Horovod's example of ImageNet: weights and rates stay equal."""
    kinds = {
        "SGD": lambda p: torch.optim.SGD(p, 0.1),
        "SGD with weight decay": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1),
        "AdamW": lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
        "Adam": lambda p: torch.optim.Adam(p, 0.01),
    }
    for name, kind in kinds.items():
        network = torch.nn.Linear(4, 1)
        steps = hvd.DistributedOptimizer(
            kind(network.parameters()), named_parameters=network.named_parameters()
        )
        if RANK == 0:
            earlier = torch.nn.Linear(4, 1)
            own = kind(earlier.parameters())
            earlier(torch.ones(2, 4)).sum().backward()
            own.step()
            own.param_groups[0]["lr"] = 0.005
            network.load_state_dict(earlier.state_dict())
            steps.load_state_dict(own.state_dict())
        hvd.broadcast_parameters(network.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(steps, root_rank=0)
        assert steps.param_groups[0]["lr"] == 0.005, name
        equal(network, name)
        for _ in range(3):
            steps.zero_grad()
            network(torch.randn(8, 4)).pow(2).mean().backward()
            steps.step()
        equal(network, name)


def drift() -> None:
    """A learning rate or a weight of one rank is an error within ten steps; ranks that have joined are
    none.
    """

    def train(
        harm: Callable[[torch.nn.Module, torch.optim.Optimizer], object], batches: int, words: str = ""
    ) -> int:
        network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(network.parameters(), 0.01), named_parameters=network.named_parameters()
        )
        hvd.broadcast_parameters(network.state_dict(), root_rank=0)
        for step in range(batches):
            optimizer.zero_grad()
            network(torch.randn(8, 4)).pow(2).mean().backward()
            try:
                optimizer.step()
            except RuntimeError as error:
                assert "DDL-1-7] the ranks have drifted apart" in str(error), error
                assert words in str(error) and "DDLCallback" not in str(error), error
                return step
            if RANK == 1 and step == 2:
                harm(network, optimizer)
        return batches

    if SIZE == 1:
        return
    assert train(lambda network, optimizer: None, 24) == 24
    rate = "average the figure that a scheduler decides by, by hvd.allreduce"
    assert train(lambda network, optimizer: optimizer.param_groups[0].update(lr=0.02), 24, rate) <= 12
    assert train(lambda network, optimizer: network[1].bias.data.add_(1e-3), 24) <= 12
    assert train(lambda network, optimizer: None, 24 - 7 * RANK) >= 17
    hvd.join()


def other_optimizer_of_one_rank() -> None:
    """Is named, and does not leave the ranks to wait for each other."""
    if SIZE == 1:
        return
    network = torch.nn.Linear(4, 3)
    kind = torch.optim.Adam if RANK == 1 else torch.optim.SGD
    optimizer = hvd.DistributedOptimizer(
        kind(network.parameters(), 0.01), named_parameters=network.named_parameters()
    )
    hvd.broadcast_parameters(network.state_dict(), root_rank=0)
    try:
        for _ in range(6):
            optimizer.zero_grad()
            network(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()
    except RuntimeError as error:
        assert "; optimizer SGD on rank 0, Adam on rank 1; found after update 2" in str(error), error
        assert "give all ranks the same optimizer with the same settings" in str(error), error
    else:
        raise AssertionError("another optimizer on one rank is no error")


def drift_behind_a_join() -> None:
    """Ranks that have made other numbers of updates compare after the same ones again."""
    if SIZE == 1:
        return
    network = torch.nn.Linear(4, 3)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(network.parameters(), 0.01), named_parameters=network.named_parameters()
    )
    hvd.broadcast_parameters(network.state_dict(), root_rank=0)

    def train(updates: int) -> None:
        for _ in range(updates):
            optimizer.zero_grad()
            network(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()

    train(10 + 3 * RANK)
    last = hvd.join()
    hvd.broadcast_parameters(network.state_dict(), root_rank=last)
    train(20 + 3 * RANK)
    assert hvd.join() == last
    try:
        train(3)
    except RuntimeError as error:
        assert (
            "after hvd.join, broadcast the weights and the optimizer's state of the rank that it returns"
            in str(error)
        ), error
    else:
        raise AssertionError("weights that differ after a join are no error")


def two_optimizers_of_one_class() -> None:
    """Each is compared by itself; the error names the one that differs."""
    if SIZE == 1:
        return

    def train(harmed: int | None) -> str:
        networks = [torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)]
        optimizers = [
            hvd.DistributedOptimizer(
                torch.optim.SGD(network.parameters(), 0.01),
                named_parameters=network.named_parameters(prefix=f"network {number}"),
            )
            for number, network in enumerate(networks)
        ]
        for network in networks:
            hvd.broadcast_parameters(network.state_dict(), root_rank=0)
        for step in range(24):
            # One makes two updates for one of the other.
            for number in (0, 1, 1):
                optimizers[number].zero_grad()
                networks[number](torch.randn(8, 4)).pow(2).mean().backward()
                try:
                    optimizers[number].step()
                except RuntimeError as error:
                    return str(error)
            if RANK == 1 and step == 2 and harmed is not None:
                networks[harmed].bias.data.add_(1e-3)
        return ""

    assert train(None) == ""
    for harmed in (0, 1):
        assert f"weights differ, which are to be the same: network {harmed}.bias by up to" in train(harmed)


if __name__ == "__main__":
    run(
        [
            distributed_optimizer,
            compressed,
            accumulated,
            sparse,
            state_goes_on,
            resumed,
            drift,
            other_optimizer_of_one_rank,
            drift_behind_a_join,
            two_optimizers_of_one_class,
        ]
    )
