"""A sweep over a network for handwritten digits, by any engine.

Run it:  python digits.py --engine local
         python digits.py --engine spark        SPARK_MASTER=spark://host:7077 for a cluster
         python digits.py --engine dask
         python digits.py --engine slurm        where Slurm is
"""

import argparse
import time

import ddl_sweep as sweep

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--engine", choices=("local", "spark", "dask", "slurm"), default="local")
parser.add_argument("--sampler", help="grid, random, tpe, …; a grid without it")
parser.add_argument("--trials", type=int, default=8)
parser.add_argument("--at-once", type=int, help="trials at the same time")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--folder", default="digits-sweep", help="keeps the sweep, and continues it")


def train(rate: float, width: int, epochs: int) -> dict[str, float]:
    """What runs in a process of its own, on whatever machine the engine has: it imports what it needs."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    torch.set_num_threads(1)  # other trials have the other cores
    torch.manual_seed(1)
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images / 16.0, dtype=torch.float32)
    digits = torch.tensor(labels)
    network = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    for _ in range(epochs):
        for part in torch.randperm(1500).split(64):  # the last 297 images are kept for the test
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(pixels[part]), digits[part])
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        accuracy = (network(pixels[1500:]).argmax(1) == digits[1500:]).float().mean().item()
    return {"accuracy": accuracy, "loss": loss.item()}


if __name__ == "__main__":  # processes of dask import this file
    options = parser.parse_args()
    lists = {"rate": [1e-4, 1e-3, 1e-2, 1e-1], "width": [16, 64], "epochs": [options.epochs]}
    ranges = {
        "rate": sweep.uniform(1e-4, 1e-1, log=True),
        "width": sweep.uniform(8, 128, integer=True, log=True),
        "epochs": [options.epochs],
    }
    grid = options.sampler in (None, "grid")
    start_time = time.monotonic()
    result = sweep.run(
        train,
        lists if grid else ranges,
        sampler=options.sampler,
        trials=options.trials,
        engine=options.engine,
        at_once=options.at_once,
        maximize="accuracy",
        folder=options.folder,
    )
    minutes = (time.monotonic() - start_time) / 60
    print(result.table())
    print("best:", result.best.params)
    print(f"trials/min: {len(result.trials) / minutes:.1f}")
    print(f"accuracy: {result.best.value:.3f}")
    if result.best.value is None or result.best.value < 0.8:
        raise SystemExit("no trial learned")
