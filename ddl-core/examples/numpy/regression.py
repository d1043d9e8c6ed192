"""Logistic regression in NumPy, with gradients that DDL averages: for 1 or many ranks, without a framework.

Run it:  ddlrun -np 2 python regression.py
"""

import argparse

import ddl
import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--points", type=int, default=4000, help="over all ranks")
parser.add_argument("--rate", type=float, default=0.5, help="learning rate")
options = parser.parse_args()

rank, ranks = ddl.rank(), ddl.size()  # 1. under the launcher, `import ddl` is enough
random = np.random.default_rng(1)
points = random.normal(size=(options.points, 8))
labels = (points @ random.normal(size=8) + 0.1 * random.normal(size=options.points) > 0).astype(float)
test = options.points * 4 // 5
# 2. disjoint data, equally much on every rank
most = test // ranks * ranks
mine, mine_labels = points[rank:most:ranks], labels[rank:most:ranks]

weights = ddl.bcast(np.random.default_rng().normal(size=8))  # 3. the same start
for _ in range(options.steps):
    predicted = 1 / (1 + np.exp(-mine @ weights))
    gradient = mine.T @ (predicted - mine_labels) / len(mine)
    weights -= options.rate * ddl.allreduce(gradient, op="avg")  # 4. averaged gradients

if rank == 0:
    accuracy = np.mean((points[test:] @ weights > 0) == labels[test:])
    print(f"ranks {ranks}  test accuracy {accuracy:.3f}")
    if accuracy < 0.8:
        raise SystemExit("the model did not learn")
