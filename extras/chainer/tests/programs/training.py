"""Trains on handwritten digits; every rank takes its part of each batch. Writes rank 0's parameters.

Arguments: the file to write, and "ddl", or "alone" for one process with the whole batch.
"""

import sys

import chainer
import chainer.functions as F
import chainer.links as L
import chainermn
import ddl
import ddl_chainer
import numpy as np
from sklearn.datasets import load_digits

BATCH, STEPS = 48, 12
images, labels = load_digits(return_X_y=True)
images, labels = (images / 16).astype("d").reshape(-1, 1, 8, 8), labels.astype("i")


class Network(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.convolution = L.Convolution2D(1, 8, 3)
            self.last = L.Linear(8 * 36, 10)

    def forward(self, x):
        return self.last(F.relu(self.convolution(x)))


chainer.global_config.dtype = np.float64
together = sys.argv[2] == "ddl"
comm = ddl_chainer.create_communicator() if together else None
rank, size = (comm.rank, comm.size) if together else (0, 1)
# Other initial values on other ranks: the optimizer has to give all those of rank 0.
np.random.seed(7 + rank)
model = L.Classifier(Network())
optimizer = chainer.optimizers.MomentumSGD(0.1)
if together:
    optimizer = chainermn.create_multi_node_optimizer(optimizer, comm)
optimizer.setup(model)
if together:
    # ChainerMN's first update only gives all ranks the parameters of rank 0.
    optimizer.update(model, images[:1], labels[:1])
for step in range(STEPS):
    mine = slice(step * BATCH + rank * BATCH // size, step * BATCH + (rank + 1) * BATCH // size)
    optimizer.update(model, images[mine], labels[mine])
own = np.concatenate([one.data.ravel() for _, one in sorted(model.namedparams())])
if together:
    every = ddl.all_gather(own).reshape(size, -1)
    assert (every == own).all(), "the ranks' parameters differ"
if rank == 0:
    np.save(sys.argv[1], own)
    print("loss", float(model.loss.array), flush=True)
