"""Two ranks fit a line, each to its half of the points, and end where one process with all of them would."""

import sys

import ddl
import numpy as np

POINTS, STEPS = 32, 400


def points(rank: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(-1.0, 1.0, POINTS) + 0.5 * rank
    return x, 3.0 * x - 2.0 + 0.3 * (-1.0) ** rank


def main() -> int:
    x, y = points(ddl.rank())
    weights = np.zeros(2)
    for _ in range(STEPS):
        error = weights[0] * x + weights[1] - y
        gradient = np.array([(error * x).mean(), error.mean()])
        weights -= 0.5 * ddl.allreduce(gradient) / ddl.size()
    halves = [points(rank) for rank in (0, 1)]
    every_x, every_y = (np.concatenate(part) for part in zip(*halves, strict=True))
    exact = np.linalg.lstsq(np.stack([every_x, np.ones_like(every_x)], axis=1), every_y, rcond=None)[0]
    good = ddl.size() == 2 and bool(np.allclose(weights, exact, atol=1e-6))
    print(f"rank {ddl.rank()} of {ddl.size()}: y = {weights[0]:.3f} x {weights[1]:+.3f}, {good=}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
