"""Trials that are jobs of ddlrun with two ranks: parameter, ranks, sum.  ranks_in_trials.py FOLDER ENGINE

The engine `barrier` is Spark with two tasks for each trial.
"""

import json
import sys

import ddl_sweep as sweep

RANK = """
import sys, ddl, numpy
total = float(ddl.allreduce(numpy.array([(ddl.rank() + 1) * float(sys.argv[1])]))[0])
if ddl.rank() == 0:
    print(f"ranks: {ddl.size()}\\ntotal: {total}")
"""


def train(trial: sweep.Trial) -> dict[str, float]:
    ranks = None if trial.hosts else 2
    job = trial.ddlrun(["python", "-c", RANK, str(trial.params["x"])], ranks=ranks)
    return job.metrics


if __name__ == "__main__":
    folder, engine = sys.argv[1:]
    chosen = sweep.Spark(barrier_ranks=2) if engine == "barrier" else engine
    result = sweep.run(train, {"x": [1, 10]}, engine=chosen, maximize="total", folder=folder, at_once=1)
    print(json.dumps([[t.params["x"], t.metrics["ranks"], t.value] for t in result.trials]))
