"""Runs of a function over lists of arguments, each in a task of Spark, as tutorials for Spark clusters do it.

Run it:  python launch_digits.py        SPARK_MASTER=spark://host:7077 for a cluster
"""

import os
import time

import ddl_sweep as sweep
from pyspark.sql import SparkSession


def train(learning_rate: float, dropout: float) -> float:
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(1)
    images, labels = load_digits(return_X_y=True)
    pixels, digits = torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)
    for _ in range(10):
        for part in torch.randperm(1500).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(pixels[part]), digits[part]).backward()
            optimizer.step()
    network.eval()
    with torch.no_grad():
        return (network(pixels[1500:]).argmax(1) == digits[1500:]).float().mean().item()


spark = SparkSession.builder.master(os.environ.get("SPARK_MASTER", "local[2]")).getOrCreate()
args_dict = {"learning_rate": [0.001, 0.0005], "dropout": [0.45, 0.7]}
start_time = time.monotonic()
for arguments in (args_dict, sweep.grid(args_dict)):
    values = sweep.launch(spark, train, arguments)
    for run, value in enumerate(values):
        print({name: column[run] for name, column in arguments.items()}, f"{value:.3f}")
minutes = (time.monotonic() - start_time) / 60
print(f"trials/min: {6 / minutes:.1f}")
print(f"accuracy: {max(values):.3f}")
spark.stop()
