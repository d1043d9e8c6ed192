"""A sweep over LeNet's learning rate on Spark: each worker trains a network of its own.

Started by: python -m ddl_spark --workers 2 -- python sweep_lenet.py --trials 2
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import digits


def trial_of(programs: str, batch: int, epochs: int, rate: float) -> float:
    """Train one network, in a process of an executor; its accuracy."""
    sys.path.insert(0, programs)
    import torch
    import torch_lenet

    torch.set_num_threads(1)
    torch.manual_seed(1234)
    schedule = torch_lenet.digits.Schedule(batch, epochs, rate)
    model = torch_lenet.lenet()
    optimizer = torch_lenet.optimizer_of(model, rate)
    for epoch in range(epochs):
        torch_lenet.train_epoch(model, optimizer, torch_lenet.digits.batches(schedule, 0, 1, epoch))
    return float(torch_lenet.accuracy(model))


def main() -> None:
    import ddl_sweep as sweep

    parser = digits.parser(__doc__)
    parser.add_argument(
        "--trials", type=int, default=2, help="learning rates, from high to low by halves (2)"
    )
    options = parser.parse_args()
    programs = str(Path(__file__).resolve().parent)
    clock = digits.Clock(True)
    accuracies: list[float] = []

    def steps() -> int:
        with tempfile.TemporaryDirectory(prefix="sweep-lenet.", dir=Path.cwd()) as folder:
            result = sweep.run(
                trial_of,
                {
                    "programs": [programs],
                    "batch": [options.batch_size],
                    "epochs": [options.epochs],
                    "rate": [options.learning_rate / 2**number for number in range(options.trials)],
                },
                engine="spark",
                maximize="value",
                folder=Path(folder) / "sweep",
                quiet=True,
            )
            assert result.best is not None and result.best.value is not None
            accuracies.append(result.best.value)
        schedule = digits.schedule_of(options)
        return int(options.trials * options.epochs * schedule.steps(1) * schedule.batch)

    clock.train(steps)
    # which of them is good is known at the end alone
    clock.accuracy(accuracies[0])
    clock.end()


if __name__ == "__main__":
    main()
