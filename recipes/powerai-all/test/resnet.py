"""Trains torchvision's resnet18 on the ranks of `ddlrun`, and without them, to the same weights."""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, models
from torchvision.transforms import v2

STEPS, RATE = 4, 0.05

dist.init_process_group("ddl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
# double precision: rounding grows from step to step
model = models.resnet18(num_classes=10).double()
prepare = v2.Compose([v2.ToImage(), v2.Resize((48, 48)), v2.ToDtype(torch.float64, scale=True)])
images = datasets.FakeData(4 * STEPS * size, (3, 60, 60), 10, prepare)


def batches(of):
    return DataLoader(images, 4, sampler=DistributedSampler(images, size, of, shuffle=False))


def loss_of(net, batch):
    return F.cross_entropy(net(batch[0]), batch[1])


# One process with a copy of the model for each rank: batch normalisation sees the images of one rank at a
# time, and begins each step with the buffers of rank 0, as with DistributedDataParallel.
copies = [copy.deepcopy(model) for _ in range(size)]
for parts in zip(*(batches(of) for of in range(size)), strict=True):
    for same in zip(*(one.buffers() for one in copies), strict=True):
        for buffer in same:
            buffer.copy_(same[0])
    for one, batch in zip(copies, parts, strict=True):
        one.zero_grad()
        loss_of(one, batch).backward()
    with torch.no_grad():
        for same in zip(*(one.parameters() for one in copies), strict=True):
            mean = torch.stack([one.grad for one in same]).mean(0)
            for one in same:
                one -= RATE * mean

before = [parameter.detach().clone() for parameter in model.parameters()]
trained = DistributedDataParallel(model)
optimizer = torch.optim.SGD(trained.parameters(), RATE)
for batch in batches(rank):
    optimizer.zero_grad()
    loss_of(trained, batch).backward()
    optimizer.step()

for was, found, expected in zip(before, model.parameters(), copies[rank].parameters(), strict=True):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    assert (found - was).abs().max() > 1e-6
for name, found in model.named_buffers():
    torch.testing.assert_close(found, copies[rank].get_buffer(name), rtol=1e-9, atol=1e-11)
dist.destroy_process_group()
print(f"the weights of one process on rank {rank} of {size}")
