"""DDP with find_unused_parameters: each step trains one of two heads; the batches differ among the ranks."""

import os

import digits
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class DigitsDataset(Dataset):
    """The rows of this rank, as dicts."""

    def __init__(self, rank, world_size):
        self.images, self.labels = digits.shard(rank, world_size)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        return {"image": self.images[idx], "label": self.labels[idx]}


class TwoHeads(nn.Module):
    """A detector of the digit, and one of its parity."""

    def __init__(self, hidden_dim=32):
        super().__init__()
        self.backbone = nn.ModuleDict({"proj": nn.Linear(64, hidden_dim), "norm": nn.LayerNorm(hidden_dim)})
        self.digit_head = nn.Linear(hidden_dim, 10)
        self.parity_head = nn.Linear(hidden_dim, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, image, head):
        self.calls += 1
        features = torch.relu(self.backbone["norm"](self.backbone["proj"](image)))
        return self.digit_head(features) if head == "digit" else self.parity_head(features)


def init_distributed_mode():
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group(backend="ddl", init_method="env://", world_size=world_size, rank=rank)
        return rank, world_size
    print("Not using distributed mode")
    return 0, 1


def main():
    rank, world_size = init_distributed_mode()
    torch.manual_seed(11)
    model = TwoHeads()
    model_without_ddp = model
    if world_size > 1:
        model = DistributedDataParallel(model, find_unused_parameters=True)
        model_without_ddp = model.module
    optimizer = torch.optim.NAdam(model.parameters(), lr=5e-3)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    loader = DataLoader(DigitsDataset(rank, world_size), batch_size=digits.BATCH // world_size)
    losses = []
    for step, batch in enumerate(loader):
        head = "parity" if step % 4 == 3 else "digit"
        target = batch["label"] % 2 if head == "parity" else batch["label"]
        loss = criterion(model(batch["image"], head=head), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if head == "digit":
            losses.append(loss.item())
    assert model_without_ddp.calls == len(loader)
    weights = {name: value.numpy() for name, value in model_without_ddp.state_dict().items()}
    digits.save(rank, weights, losses)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
