"""PyTorch Lightning on the backend `ddl`: handwritten digits, for 1 or many ranks.

Needs:   pip install lightning
Run it:  ddlrun -np 2 python lightning_digits.py
"""

import argparse
from pathlib import Path

import ddl.torch
import lightning
import torch
from ddl.torch.lightning import DDLEnvironment
from lightning.pytorch.strategies import DDPStrategy
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch", type=int, default=60, help="images of one step, over all ranks")
parser.add_argument("--save", type=Path, help="file for the trained weights")
parser.add_argument("--device", choices=("cpu", "gpu"), help="what computes; a GPU where there is one")
parser.add_argument("--use_fp16", action="store_true", help="float16, with the loss scaled; on a GPU")
options = parser.parse_args()
if options.device == "gpu" and not torch.cuda.is_available():
    raise SystemExit("--device=gpu: torch sees no GPU; install powerai-gpu, or use --device=cpu")


class Digits(lightning.LightningModule):
    """A small network; nothing in it knows how many ranks there are."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        right = (self.network(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("accuracy", right, sync_dist=True)  # averaged over the ranks

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


lightning.seed_everything(1)
images, labels = load_digits(return_X_y=True)
pixels, digits = torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)
ranks = DDLEnvironment()
device = ddl.torch.local_device(options.device)
share = options.batch // ranks.world_size()
# Lightning gives each rank its part of the data.
training = DataLoader(TensorDataset(pixels[:1500], digits[:1500]), batch_size=share)
test = DataLoader(TensorDataset(pixels[1500:1796], digits[1500:1796]), batch_size=37)

model = Digits()
trainer = lightning.Trainer(
    accelerator=device.type,
    precision="16-mixed" if options.use_fp16 else "32-true",
    devices=ranks.devices,
    num_nodes=ranks.num_nodes,
    strategy=DDPStrategy(process_group_backend="ddl"),
    plugins=[ranks],
    max_epochs=options.epochs,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(model, training, test)
if trainer.is_global_zero:
    print(f"ranks {trainer.world_size}  test accuracy {trainer.callback_metrics['accuracy']:.3f}")
    if options.save is not None:
        torch.save(model.network.state_dict(), options.save)
