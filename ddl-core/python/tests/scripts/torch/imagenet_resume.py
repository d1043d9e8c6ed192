"""The form of Horovod's ImageNet example: warm-up by hand, batches for each allreduce, rank 0 resumes."""

import argparse
import math
import os

import digits
import horovod.torch as hvd
import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoint-format", default="./checkpoint-{epoch}.pth.tar")
parser.add_argument("--fp16-allreduce", action="store_true", default=False)
parser.add_argument("--batches-per-allreduce", type=int, default=2)
parser.add_argument("--base-lr", type=float, default=0.05)
parser.add_argument("--warmup-epochs", type=float, default=1)
parser.add_argument("--wd", type=float, default=0.00005)
parser.add_argument("--steps", type=int, default=28, help="of an epoch")
args = parser.parse_args()
hvd.init()
args.batch_size = digits.BATCH // hvd.size() // args.batches_per_allreduce
allreduce_batch_size = args.batch_size * args.batches_per_allreduce
verbose = 1 if hvd.rank() == 0 else 0
losses = []


class Metric:
    def __init__(self, name):
        self.name = name
        self.sum = torch.tensor(0.0)
        self.n = torch.tensor(0.0)

    def update(self, val):
        self.sum += hvd.allreduce(val.detach().cpu(), name=self.name)
        self.n += 1

    @property
    def avg(self):
        return self.sum / self.n


def adjust_learning_rate(optimizer, epoch, batch_idx, batches):
    if epoch < args.warmup_epochs:
        lr_adj = 0.25 + 0.75 * (epoch + float(batch_idx + 1) / batches) / args.warmup_epochs
    else:
        lr_adj = 1.0 if epoch < 2 else 1e-1
    for param_group in optimizer.param_groups:
        param_group["lr"] = args.base_lr * args.batches_per_allreduce * lr_adj


def accuracy(output, target):
    pred = output.max(1, keepdim=True)[1]
    return pred.eq(target.view_as(pred)).cpu().float().mean()


def run(epochs):
    """Train up to an epoch, from the last checkpoint on; return the model and the last accuracy."""
    resume_from_epoch = 0
    for try_epoch in range(epochs, 0, -1):
        if os.path.exists(args.checkpoint_format.format(epoch=try_epoch)):
            resume_from_epoch = try_epoch
            break
    # Rank 0 decides: checkpoints may be on its disk alone.
    resume_from_epoch = hvd.broadcast(
        torch.tensor(resume_from_epoch), root_rank=0, name="resume_from_epoch"
    ).item()
    torch.manual_seed(42 + hvd.rank())
    model = nn.Sequential(nn.Linear(64, 40, bias=False), nn.ReLU(), nn.Linear(40, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.base_lr, momentum=0.9, weight_decay=args.wd)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=compression,
        backward_passes_per_step=args.batches_per_allreduce,
        op=hvd.Average,
    )
    if resume_from_epoch > 0 and hvd.rank() == 0:
        checkpoint = torch.load(args.checkpoint_format.format(epoch=resume_from_epoch))
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    images, labels = digits.shard(hvd.rank(), hvd.size(), steps=args.steps)
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))
    loader = torch.utils.data.DataLoader(dataset, batch_size=allreduce_batch_size)
    for epoch in range(resume_from_epoch, epochs):
        train_loss, train_accuracy = Metric("train_loss"), Metric("train_accuracy")
        for batch_idx, (data, target) in enumerate(loader):
            adjust_learning_rate(optimizer, epoch, batch_idx, len(loader))
            optimizer.zero_grad()
            for i in range(0, len(data), args.batch_size):
                data_batch = data[i : i + args.batch_size]
                target_batch = target[i : i + args.batch_size]
                output = model(data_batch)
                train_accuracy.update(accuracy(output, target_batch))
                loss = F.cross_entropy(output, target_batch)
                train_loss.update(loss)
                losses.append(loss.item())
                loss.div_(math.ceil(float(len(data)) / args.batch_size))
                loss.backward()
            optimizer.step()
        if verbose:
            print(
                f"epoch {epoch}: loss {train_loss.avg.item():.4f}, {100.0 * train_accuracy.avg.item():.1f} %"
            )
        if hvd.rank() == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, args.checkpoint_format.format(epoch=epoch + 1))
    return model, train_accuracy.avg.item()


run(1)
steps_before = len(losses)
model, last = run(3)
assert len(losses) == 3 * steps_before and last > 0.8, (len(losses), last)
digits.save(hvd.rank(), {name: value.numpy() for name, value in model.state_dict().items()}, losses)
