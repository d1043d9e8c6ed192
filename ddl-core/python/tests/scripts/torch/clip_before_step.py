"""Gradients are averaged by synchronize(), clipped, and applied within skip_synchronize()."""

import argparse

import digits
import horovod.torch as hvd
import torch
from torch import nn


class Trainer:
    """Owns the model and its optimizer."""

    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed + hvd.rank())
        self.model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
        self.criterion = nn.CrossEntropyLoss()
        optimizer = torch.optim.Adagrad(self.model.parameters(), lr=args.lr)
        self.optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=self.model.named_parameters())
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)
        self.norms = []

    def train_step(self, data, target):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(data), target)
        loss.backward()
        # the norm is that of the averaged gradient
        self.optimizer.synchronize()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
        with self.optimizer.skip_synchronize():
            self.optimizer.step()
        self.norms.append(float(norm))
        return loss.item()

    def train(self, steps):
        images, labels = map(torch.from_numpy, digits.load())
        losses = []
        for step in range(steps):
            rows = digits.part(step, hvd.rank(), hvd.size())
            losses.append(self.train_step(images[rows], labels[rows]))
        return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1234)
    hvd.init()
    trainer = Trainer(parser.parse_args())
    losses = trainer.train(50)
    assert max(trainer.norms) > trainer.args.clip, trainer.norms
    assert all(norms == trainer.norms for norms in hvd.allgather_object(trainer.norms))
    weights = {name: value.numpy() for name, value in trainer.model.state_dict().items()}
    digits.save(hvd.rank(), weights, losses)
