"""Horovod's elastic form with the ranks that the job begins with: TorchState, ElasticSampler, commits."""

import digits
import horovod.torch as hvd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

hvd.init()
images, labels = digits.load()
dataset = TensorDataset(torch.from_numpy(images[:896]), torch.from_numpy(labels[:896]))
torch.manual_seed(31 + hvd.rank())
model = nn.Sequential(nn.Linear(64, 28), nn.Hardtanh(), nn.Linear(28, 10))
optimizer = torch.optim.Adamax(model.parameters(), lr=0.01, eps=1e-4)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
train_sampler = hvd.elastic.ElasticSampler(dataset, shuffle=True, seed=2)
train_loader = DataLoader(dataset, batch_size=digits.BATCH // hvd.size(), sampler=train_sampler)
resets, losses = [], []


def on_state_reset():
    resets.append(state.epoch)


@hvd.elastic.run
def train(state):
    """Train from the state's epoch and batch on."""
    while state.epoch < 2:
        for batch_idx, (data, target) in enumerate(train_loader):
            state.batch = batch_idx
            state.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(state.model(data), target)
            loss.backward()
            state.optimizer.step()
            losses.append(loss.item())
            state.train_sampler.record_batch(batch_idx, digits.BATCH // hvd.size())
            if batch_idx % 10 == 9:
                state.commit()
        state.epoch += 1
        state.batch = 0
        state.train_sampler.set_epoch(state.epoch)
        state.commit()
    return state.epoch


state = hvd.elastic.TorchState(
    model=model, optimizer=optimizer, train_sampler=train_sampler, epoch=0, batch=0
)
state.register_reset_callbacks([on_state_reset])
assert train(state) == 2 and not resets
digits.save(hvd.rank(), {name: value.numpy() for name, value in model.state_dict().items()}, losses)
