"""Optuna looks for the bottom of a bowl; prints JSON: quadratic.py FOLDER SAMPLER TRIALS [AT_ONCE]

The sampler `object` is one that is made here. `pruned` stops trials that are worse than the median.
"""

import json
import sys

import ddl_sweep as sweep


def train(x: float, n: int, kind: str | list[str]) -> float:
    return (x - 2) ** 2 + (n - 3) ** 2 + (kind != ["b", "c"])


def by_steps(trial: sweep.Trial) -> float:
    """Good trials are those with an odd number, which steps of bad ones show at once."""
    value = float(trial.number % 2 == 0)
    for step in range(5):
        trial.report(step, value)
        if trial.should_stop():
            break
    return value


if __name__ == "__main__":
    folder, name, trials, *at_once = sys.argv[1:]
    space = {"x": sweep.uniform(-10, 10), "n": sweep.uniform(0, 6, integer=True), "kind": ["a", ["b", "c"]]}
    if name == "pruned":
        result = sweep.run(
            by_steps,
            {"x": sweep.uniform(0, 1)},
            sampler="random",
            pruner="median",
            trials=int(trials),
            minimize="loss",
            folder=folder,
            at_once=1,
        )
    else:
        sampler = name
        if name == "object":
            import optuna

            sampler = optuna.samplers.TPESampler(seed=4, n_startup_trials=8)
        options = {"sampler": sampler, "trials": int(trials), "seed": 4, "folder": folder}
        result = sweep.run(train, space, minimize="loss", at_once=int(*at_once or [2]), **options)
    print(json.dumps([result.best.params, result.best.value, result.rows]))
