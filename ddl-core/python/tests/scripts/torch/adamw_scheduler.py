"""Fine-tuning as with Transformers: AdamW without decay of biases, a linear schedule, a frozen layer."""

import argparse
import random

import digits
import horovod.torch as hvd
import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset


def set_seed(args):
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)


def get_linear_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps):
    def lr_lambda(current_step):
        if current_step < num_warmup_steps:
            return (current_step + 1) / num_warmup_steps
        return max(0.0, (num_training_steps - current_step) / (num_training_steps - num_warmup_steps))

    return LambdaLR(optimizer, lr_lambda)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.Linear(64, 32)
        layer = nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=1, enable_nested_tensor=False)
        self.LayerNorm = nn.LayerNorm(32)
        self.classifier = nn.Linear(32, 10)

    def forward(self, inputs, labels=None):
        hidden = self.encoder(self.embeddings(inputs).view(-1, 2, 16)).flatten(1)
        logits = self.classifier(self.LayerNorm(hidden))
        return nn.functional.cross_entropy(logits, labels), logits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", default=5e-3, type=float)
    parser.add_argument("--weight_decay", default=0.1, type=float)
    parser.add_argument("--warmup_steps", default=5, type=int)
    parser.add_argument("--max_steps", default=50, type=int)
    parser.add_argument("--seed", default=3, type=int)
    args = parser.parse_args()
    hvd.init()
    args.per_gpu_train_batch_size = digits.BATCH // hvd.size()
    set_seed(args)
    images, labels = digits.shard(hvd.rank(), hvd.size())
    train_dataset = TensorDataset(torch.tensor(images), torch.tensor(labels))
    train_dataloader = DataLoader(
        train_dataset, sampler=SequentialSampler(train_dataset), batch_size=args.per_gpu_train_batch_size
    )

    model = Classifier()
    for parameter in model.embeddings.parameters():
        parameter.requires_grad = False
    no_decay = ["bias", "LayerNorm.weight"]
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    optimizer_grouped_parameters = [
        {
            "params": [p for n, p in trained if not any(nd in n for nd in no_decay)],
            "weight_decay": args.weight_decay,
        },
        {"params": [p for n, p in trained if any(nd in n for nd in no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(optimizer_grouped_parameters, lr=args.learning_rate, eps=1e-4)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=trained)
    scheduler = get_linear_schedule_with_warmup(optimizer, args.warmup_steps, args.max_steps)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    losses = []
    model.train()
    for step, batch in enumerate(train_dataloader):
        if step == args.max_steps:
            break
        inputs = {"inputs": batch[0], "labels": batch[1]}
        loss = model(**inputs)[0]
        loss.backward()
        optimizer.step()
        scheduler.step()
        model.zero_grad()
        losses.append(loss.item())
    assert scheduler.get_last_lr() == [0.0, 0.0]
    digits.save(hvd.rank(), {name: value.numpy() for name, value in model.state_dict().items()}, losses)


if __name__ == "__main__":
    main()
