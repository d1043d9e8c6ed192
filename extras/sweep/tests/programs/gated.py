"""Trials 0 and 1 end at once, the others when a file is there.  gated.py FOLDER ENGINE

Every start of a trial adds a line to FOLDER.started.
"""

import os
import sys
import time
from pathlib import Path

import ddl_sweep as sweep


def train(trial: sweep.Trial) -> float:
    base = str(trial.params["base"])
    with open(f"{base}.started", "a") as file:
        file.write(f"{trial.number} {os.getpid()}\n")
    end = time.monotonic() + 400
    while trial.number > 1 and not Path(f"{base}.gate").exists():
        if time.monotonic() > end:
            raise TimeoutError("nobody opened the gate")
        time.sleep(0.05)
    return 10.0 + trial.number


if __name__ == "__main__":
    folder, engine = sys.argv[1:]
    space = {"base": [folder], "x": [0, 1, 2, 3, 4]}
    result = sweep.run(train, space, maximize="score", folder=folder, engine=engine, at_once=2)
    print(*[trial.value for trial in result.trials])
