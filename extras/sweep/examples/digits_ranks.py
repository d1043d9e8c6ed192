"""A sweep whose trials are distributed jobs: each trains digits.py of examples/pytorch on two ranks of DDL.

Run it:  python digits_ranks.py                   one job after the other, on this machine
         python digits_ranks.py --engine barrier  each is two tasks of Spark, whose hosts run its ranks
"""

import argparse
import time
from pathlib import Path

import ddl_sweep as sweep

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--engine", choices=("local", "barrier"), default="local")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--folder", default="digits-ranks-sweep", help="keeps the sweep, and continues it")
options = parser.parse_args()
PROGRAM = Path(__file__).resolve().parents[3] / "ddl-core/examples/pytorch/digits.py"
RANKS = 2


def train(trial: sweep.Trial) -> dict[str, float]:
    """The first argument is called trial: so it gets the whole trial, which can start jobs of ddlrun."""
    rate, epochs = trial.params["rate"], trial.params["epochs"]
    command = ["python", str(PROGRAM), "--rate", str(rate), "--epochs", str(epochs)]
    job = trial.ddlrun(command, ranks=RANKS)
    # It prints "ranks 2  test accuracy 0.957".
    ranks, _, accuracy = job.output.rpartition("ranks ")[2].partition("  test accuracy ")
    assert int(ranks) == RANKS, job.output
    return {"accuracy": float(accuracy.split()[0])}


engine = sweep.Spark(barrier_ranks=RANKS) if options.engine == "barrier" else options.engine
space = {"rate": [1e-3, 4e-3], "epochs": [options.epochs]}
start_time = time.monotonic()
result = sweep.run(
    train, space, engine=engine, maximize="accuracy", folder=options.folder, at_once=1, limit_seconds=600
)
minutes = (time.monotonic() - start_time) / 60
print(result.table())
print(f"trials/min: {len(result.trials) / minutes:.1f}")
print(f"accuracy: {result.best.value:.3f}")
