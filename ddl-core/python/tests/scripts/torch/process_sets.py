"""Process sets: the global one trains; one of the last rank evaluates, and is removed at the end."""

import digits
import horovod.torch as hvd
import torch
from torch import nn


def build(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 24), nn.ELU(), nn.Linear(24, 10))


def evaluate(model, images, labels, process_set):
    """The accuracy, which the ranks of the set average."""
    with torch.no_grad():
        correct = (model(images).argmax(1) == labels).float().mean()
    return float(hvd.allreduce(correct, process_set=process_set, name="accuracy"))


hvd.init(process_sets="dynamic")
evaluator = hvd.add_process_set([hvd.size() - 1]) if hvd.size() > 1 else hvd.global_process_set
model = build(seed=hvd.rank())
optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3, eps=1e-4)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), process_set=hvd.global_process_set
)
for name, value in model.state_dict().items():
    hvd.broadcast_(value, root_rank=0, name=name, process_set=hvd.global_process_set)

images, labels = map(torch.from_numpy, digits.load())
losses = []
for step in range(56):
    rows = digits.part(step, hvd.rank(), hvd.size())
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 20 == 19 and evaluator.included():
        accuracy = evaluate(model, images, labels, evaluator)
        print(f"step {step}: accuracy {accuracy:.3f}")
if hvd.size() > 1:
    assert (evaluator.size(), evaluator.included()) == (1, hvd.rank() == hvd.size() - 1)
    assert hvd.remove_process_set(evaluator)
digits.save(hvd.rank(), {name: value.numpy() for name, value in model.state_dict().items()}, losses)
