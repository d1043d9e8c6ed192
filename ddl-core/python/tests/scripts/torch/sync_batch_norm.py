"""Batch normalisation over all ranks, with predictions and results from all ranks at the end."""

import digits
import horovod.torch as hvd
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset


def conv_bn(inp, oup):
    return nn.Sequential(nn.Conv2d(inp, oup, 3, bias=False), hvd.SyncBatchNorm(oup, momentum=0.2), nn.ReLU())


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(conv_bn(1, 6), conv_bn(6, 12))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(192, 24), hvd.SyncBatchNorm(24), nn.Linear(24, 10))

    def forward(self, x):
        return self.head(self.features(x.view(-1, 1, 8, 8)))


@torch.inference_mode()
def predict(model, images):
    """All predictions on all ranks, in the order of the images."""
    model.eval()
    share = len(images) // hvd.size()
    mine = images[hvd.rank() * share : (hvd.rank() + 1) * share]
    return hvd.allgather(model(mine).argmax(dim=1), name="predictions")


def main():
    hvd.init()
    # rank 0 knows the options
    options = {"lr": 0.1, "epochs": 1, "weight_decay": 1e-3} if hvd.rank() == 0 else None
    options = hvd.broadcast_object(options, root_rank=0, name="options")
    torch.manual_seed(20 + hvd.rank())
    model = ConvNet()
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=options["lr"],
        momentum=0.9,
        nesterov=True,
        weight_decay=options["weight_decay"],
    )
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    images, labels = map(torch.from_numpy, digits.load())
    rows = [row for step in range(40) for row in range(1797)[digits.part(step, hvd.rank(), hvd.size())]]
    train = Subset(TensorDataset(images, labels), rows)
    loader = DataLoader(train, batch_size=digits.BATCH // hvd.size(), drop_last=True)
    losses = []
    for _ in range(options["epochs"]):
        model.train()
        for data, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    predictions = predict(model, images[1536:1792])
    accuracy = (predictions == labels[1536:1792]).float().mean()
    assert accuracy > 0.8, accuracy
    results = hvd.allgather_object({"rank": hvd.rank(), "loss": losses[-1]})
    assert [result["rank"] for result in results] == list(range(hvd.size())), results
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    digits.save(hvd.rank(), weights | {"predictions": predictions.numpy()}, losses)


if __name__ == "__main__":
    main()
