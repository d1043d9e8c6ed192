"""PyTorch's MNIST example with DistributedDataParallel: env://, DistributedSampler, one checkpoint."""

import argparse
import os

import digits
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser(description="PyTorch MNIST")
parser.add_argument("--batch-size", type=int, default=digits.BATCH, help="of all ranks together")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--backend", default="ddl")
parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc1 = nn.Linear(16 * 2 * 2, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = x.view(-1, 16 * 2 * 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def train(args, model, loader, optimizer, epoch):
    model.train()
    losses = []
    for batch_idx, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if batch_idx % 10 == 0 and dist.get_rank() == 0:
            print(f"Train Epoch: {epoch} [{batch_idx}/{len(loader)}]\tLoss: {loss.item():.6f}")
    return losses


def main():
    args = parser.parse_args()
    # without a launcher: a world of one
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}.items():
        os.environ.setdefault(name, str(value))
    dist.init_process_group(backend=args.backend, init_method="env://")
    # other initial weights on each rank, which DDP replaces
    torch.manual_seed(1 + dist.get_rank())
    images, labels = digits.load()
    dataset = TensorDataset(
        torch.from_numpy(images[:1792]).view(-1, 1, 8, 8), torch.from_numpy(labels[:1792])
    )
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=args.batch_size // dist.get_world_size(), sampler=sampler)
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    losses = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        losses += train(args, model, loader, optimizer, epoch)

    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "mnist_cnn.pt")
    dist.barrier()
    state = torch.load("mnist_cnn.pt", map_location="cpu")
    for name, value in model.module.state_dict().items():
        assert torch.equal(state[name], value), name
    digits.save(dist.get_rank(), {name: value.numpy() for name, value in state.items()}, losses)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
