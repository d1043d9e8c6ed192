"""Summed gradients of a sharded loss in fp16 on the way, in groups, with a custom autograd function."""

import digits
import horovod.torch as hvd
import torch
from torch.autograd import Function
from torch.nn import Linear, Module, functional


class ScaledSwish(Function):
    """x * sigmoid(b x), which computes the sigmoid again in the backward pass to save memory."""

    @staticmethod
    def forward(ctx, x, b):
        ctx.save_for_backward(x, b)
        return x * torch.sigmoid(b * x)

    @staticmethod
    def backward(ctx, grad_output):
        x, b = ctx.saved_tensors
        sig = torch.sigmoid(b * x)
        slope = sig * (1 - sig)
        return grad_output * (sig + b * x * slope), (grad_output * x * x * slope).sum()


class Net(Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = Linear(64, 32), Linear(32, 10)
        self.b = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return self.fc2(ScaledSwish.apply(self.fc1(x), self.b))


def main():
    hvd.init()
    torch.manual_seed(42)
    model = Net()
    assert hvd.mpi_threads_supported() and not hvd.nccl_built()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(
            [
                {"params": [model.fc1.weight, model.fc2.weight]},
                {"params": [model.fc1.bias, model.fc2.bias, model.b], "lr": 0.1},
            ],
            lr=0.3,
        ),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16,
        op=hvd.Sum,
        groups=[[model.fc1.weight, model.fc1.bias], [model.fc2.weight, model.fc2.bias]],
    )
    hvd.broadcast_parameters(list(model.named_parameters()), root_rank=0)
    images, labels = map(torch.from_numpy, digits.load())
    losses = []
    for step in range(50):
        rows = digits.part(step, hvd.rank(), hvd.size())
        model.zero_grad()
        loss = functional.cross_entropy(model(images[rows]), labels[rows], reduction="sum") / digits.BATCH
        loss.backward()
        optimizer.step()
        total = hvd.allreduce_async(loss.detach(), op=hvd.Sum, name="loss")
        losses.append(hvd.synchronize(total).item())
    digits.save(hvd.rank(), {name: value.numpy() for name, value in model.state_dict().items()}, losses)


if __name__ == "__main__":
    main()
