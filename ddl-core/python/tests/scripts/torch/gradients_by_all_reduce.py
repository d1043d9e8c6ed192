"""A loop of 2017 without a wrapper: the data is partitioned and the gradients are averaged by hand."""

import os
from math import ceil
from random import Random

import digits
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.autograd import Variable


class Partition:
    """Dataset-like object, but only access a subset of it."""

    def __init__(self, data, index):
        self.data = data
        self.index = index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, index):
        return self.data[self.index[index]]


class BatchPartitioner:
    """Partitions each batch of a shuffled dataset into chunks."""

    def __init__(self, data, sizes, batch, seed=1234):
        indexes = list(range(len(data)))
        Random(seed).shuffle(indexes)
        self.data = data
        self.partitions = [[] for _ in sizes]
        for first in range(0, len(data) - batch + 1, batch):
            rest = indexes[first : first + batch]
            for chunk, frac in zip(self.partitions, sizes, strict=True):
                chunk += rest[: int(frac * batch)]
                rest = rest[int(frac * batch) :]

    def use(self, partition):
        return Partition(self.data, self.partitions[partition])


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def run(rank, size):
    images, labels = digits.load()
    dataset = [(torch.from_numpy(image), int(label)) for image, label in zip(images, labels, strict=True)]
    partition = BatchPartitioner(dataset, [1.0 / size] * size, digits.BATCH).use(rank)
    train_set = torch.utils.data.DataLoader(partition, batch_size=digits.BATCH // size, shuffle=False)
    torch.manual_seed(1234)
    model = nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10), nn.LogSoftmax(dim=1))
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    num_batches = ceil(len(train_set.dataset) / (digits.BATCH // size))
    losses = []
    for epoch in range(2):
        epoch_loss = 0.0
        for data, target in train_set:
            data, target = Variable(data), Variable(target)
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            losses.append(loss.item())
            epoch_loss += loss.item()
            loss.backward()
            average_gradients(model)
            optimizer.step()
        print("Rank ", rank, ", epoch ", epoch, ": ", epoch_loss / num_batches)
    digits.save(rank, {name: value.numpy() for name, value in model.state_dict().items()}, losses)


if __name__ == "__main__":
    size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0))
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    # of no other job on this host
    os.environ["MASTER_PORT"] = str(20000 + os.getppid() % 10000)
    dist.init_process_group("ddl", rank=rank, world_size=size)
    run(rank, size)
