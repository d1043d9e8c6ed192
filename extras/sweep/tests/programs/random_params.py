"""The parameters of random trials, as JSON.  random_params.py FOLDER SEED TRIALS AT_ONCE"""

import json
import sys

import ddl_sweep as sweep


def train(trial: sweep.Trial) -> float:
    return float(trial.number)


if __name__ == "__main__":
    folder, seed, trials, at_once = sys.argv[1:]
    space = {
        "x": sweep.uniform(-1, 1),
        "n": sweep.uniform(1, 3, integer=True),
        "rate": sweep.uniform(1e-6, 1, log=True),
        "kind": ["a", [1, 2]],
    }
    result = sweep.run(
        train,
        space,
        sampler="random",
        seed=int(seed),
        trials=int(trials),
        at_once=int(at_once),
        folder=folder,
    )
    print(json.dumps([trial.params for trial in result.trials]))
