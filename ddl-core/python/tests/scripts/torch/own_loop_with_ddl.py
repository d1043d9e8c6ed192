"""A loop of its own with `import ddl`: parameters from rank 0, DDL's sampler, gradients in one buffer."""

import ddl
import ddl.torch
import digits
import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset


def flat_gradient(model):
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


class OwnSGD:
    """SGD with Nesterov's momentum on the vector of all parameters."""

    def __init__(self, model, lr, momentum):
        self.model, self.lr, self.momentum = model, lr, momentum
        self.velocity = torch.zeros_like(parameters_to_vector(model.parameters()))

    def step(self):
        gradient = flat_gradient(self.model)
        # in place, on the tensor's own memory
        ddl.allreduce_(gradient.numpy(), op="avg")
        self.velocity.mul_(self.momentum).add_(gradient)
        with torch.no_grad():
            weights = parameters_to_vector(self.model.parameters())
            weights -= self.lr * (gradient + self.momentum * self.velocity)
            vector_to_parameters(weights, self.model.parameters())


torch.manual_seed(5 + ddl.rank())
model = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 6, 3), nn.SiLU(), nn.Flatten(), nn.Linear(216, 10)
)
ddl.torch.broadcast_parameters(model)
images, labels = digits.load()
dataset = TensorDataset(torch.from_numpy(images[:1280]), torch.from_numpy(labels[:1280]))
sampler = ddl.torch.DistributedSampler(dataset, shuffle=True, seed=9)
loader = DataLoader(dataset, batch_size=digits.BATCH // ddl.size(), sampler=sampler)
optimizer = OwnSGD(model, lr=0.05, momentum=0.9)
losses = []
for epoch in range(2):
    sampler.set_epoch(epoch)
    for data, target in loader:
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    mean = ddl.allreduce(np.array([np.mean(losses[-len(loader) :])]), op="avg")[0]
    if ddl.rank() == 0:
        print(f"epoch {epoch + 1}: loss {mean:.4f}")
digits.save(ddl.rank(), {name: value.numpy() for name, value in model.state_dict().items()}, losses)
