"""A training that survives the loss of any rank or host: it goes on from its latest checkpoint.

    ddlrun -np 2 -max-restarts 3 -checkpoint-dir checkpoints python train.py

Its end is that of a run that nothing happened to. That takes four things, each marked below: the data of a
step follow from the step alone; the gradient is that of the whole batch, however many ranks share it; a
checkpoint replaces the one before in one moment, and holds all that the next step needs; and every rank
starts from what rank 0 has read.
"""

import argparse
import os
import time
from pathlib import Path

import ddl
import numpy as np

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--batch", type=int, default=60, help="images of one step, over all ranks")
parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
parser.add_argument(
    "--pause", type=float, default=0.0, help="seconds to wait in each step, to have time to look"
)
options = parser.parse_args()

SIDE, DIGITS, HIDDEN, RATE, MOMENTUM = 8, 10, 32, 0.1, 0.9
SHAPES = ((SIDE * SIDE, HIDDEN), (HIDDEN,), (HIDDEN, DIGITS), (DIGITS,))


def make_images(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Blurred and noisy pictures of ten signs; the same on every rank."""
    random = np.random.default_rng(1)
    signs = random.random((DIGITS, SIDE * SIDE)) > 0.5
    labels = random.integers(DIGITS, size=count)
    return signs[labels] + random.normal(0.0, 0.7, (count, SIDE * SIDE)), labels


def parts(flat: np.ndarray) -> list[np.ndarray]:
    """The layers' weights as views of one array, which is reduced in one call."""
    sizes = [int(np.prod(shape)) for shape in SHAPES]
    return [
        piece.reshape(shape)
        for piece, shape in zip(np.split(flat, np.cumsum(sizes)[:-1]), SHAPES, strict=True)
    ]


def loss_and_gradient(
    weights: np.ndarray, images: np.ndarray, labels: np.ndarray
) -> tuple[float, np.ndarray]:
    """Sums over the images, not means: the ranks' shares may be of different sizes."""
    first, first_bias, second, second_bias = parts(weights)
    hidden = np.maximum(images @ first + first_bias, 0.0)
    scores = hidden @ second + second_bias
    scores -= scores.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(scores).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))
    loss = float((log_sum[:, 0] - scores[rows, labels]).sum())
    slope = np.exp(scores - log_sum)
    slope[rows, labels] -= 1.0
    gradient = np.empty_like(weights)
    pieces = parts(gradient)
    pieces[2][:], pieces[3][:] = hidden.T @ slope, slope.sum(axis=0)
    slope = (slope @ second.T) * (hidden > 0)
    pieces[0][:], pieces[1][:] = images.T @ slope, slope.sum(axis=0)
    return loss, gradient


def save(path: Path, step: int, weights: np.ndarray, speed: np.ndarray) -> None:
    """All that the next step needs. Whoever reads sees the old file or the new one, never half of one."""
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        np.savez(file, step=step, weights=weights, speed=speed)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def load(path: Path, count: int) -> tuple[int, np.ndarray, np.ndarray]:
    """The checkpoint, or a beginning. Rank 0 reads, and every rank starts from what it has read."""
    state = np.zeros(1 + 2 * count)
    if ddl.rank() == 0:
        if path.exists():
            with np.load(path) as saved:
                state[:] = np.concatenate([[saved["step"]], saved["weights"], saved["speed"]])
        else:
            state[1 : 1 + count] = np.random.default_rng(2).normal(0.0, 0.1, count)
    state = ddl.bcast(state)
    return int(state[0]), state[1 : 1 + count].copy(), state[1 + count :].copy()


folder = Path(ddl.checkpoint_dir("checkpoints") or ".")
folder.mkdir(parents=True, exist_ok=True)
images, labels = make_images(2000)
begin, weights, speed = load(folder / "latest.npz", sum(int(np.prod(shape)) for shape in SHAPES))
if ddl.rank() == 0:
    after = f", started again after: {ddl.restart_reason()}" if ddl.restart_count() else ""
    print(f"{ddl.size()} ranks, from step {begin}{after}", flush=True)

for step in range(begin, options.steps):
    # The data of a step follow from the step alone, and are shared among the ranks there are.
    batch = np.random.default_rng([3, step]).choice(len(images), options.batch, replace=False)
    share = batch[ddl.rank() :: ddl.size()]
    loss, gradient = loss_and_gradient(weights, images[share], labels[share])
    # The gradient of the whole batch, however many ranks share it.
    total = ddl.allreduce(np.append(gradient, loss)) / options.batch
    speed = MOMENTUM * speed - RATE * total[:-1]
    weights += speed
    time.sleep(options.pause)
    if ddl.rank() == 0 and ((step + 1) % options.every == 0 or step + 1 == options.steps):
        save(folder / "latest.npz", step + 1, weights, speed)
        print(f"step {step + 1} loss {total[-1]:.6f}", flush=True)
