"""What the scripts share: the digits, each rank's part of a batch, and the file of results."""

import os

import numpy as np
from sklearn.datasets import load_digits

#: Rows of a step, of all ranks together.
BATCH = 32
#: The steps of an epoch; the rows that do not fill another are left out.
STEPS = 1792 // BATCH


def load():
    """Images from 0 to 1 as rows, and labels."""
    digits = load_digits()
    return (digits.data / 16.0).astype(np.float32), digits.target.astype(np.int64)


def part(step, rank=0, size=1):
    """The rows of a step that are a rank's; those of all ranks are the same for any number of ranks."""
    first = (step * BATCH) % (1792 - BATCH + 1)
    rows = BATCH // size
    return slice(first + rank * rows, first + (rank + 1) * rows)


def shard(rank=0, size=1, steps=STEPS):
    """Images and labels of a rank for an epoch of `fit` or a DataLoader, without shuffling.

    In batches of BATCH // size these are the rows of `part`.
    """
    images, labels = load()
    rows = np.concatenate([np.arange(1797)[part(step, rank, size)] for step in range(steps)])
    return images[rows], labels[rows]


def save(rank, weights, losses):
    """Write what a test compares. weights: names and arrays. Fails if the loss does not fall."""
    assert np.mean(losses[-3:]) < 0.7 * np.mean(losses[:3]), losses
    np.savez(os.path.join(os.environ["OUT"], f"rank{rank}.npz"), **weights)
