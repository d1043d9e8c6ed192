"""Ranks with different amounts of data end each epoch with join; broadcasts and metrics follow it."""

import digits
import horovod.torch as hvd
import torch
from torch import nn

hvd.init()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 32), nn.LeakyReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
images, labels = map(torch.from_numpy, digits.load())
losses = []
for epoch in range(3):
    # the last rank has the most batches
    for step in range(20 + 3 * hvd.rank()):
        rows = digits.part(step, hvd.rank(), hvd.size())
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    scheduler.step()
    last = hvd.join()
    assert last == hvd.size() - 1, last
    # The last one has made updates that the others have not.
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    hvd.broadcast_optimizer_state(optimizer, root_rank=last)
    mean_loss = hvd.allreduce(torch.tensor(losses[-1]), name="mean_loss").item()
    if hvd.rank() == last:
        print(f"epoch {epoch}: loss {mean_loss:.3f}")
digits.save(hvd.rank(), {name: value.numpy() for name, value in model.state_dict().items()}, losses)
