"""Trials that fail in all ways; prints the rows as JSON.  misbehaving.py FOLDER"""

import json
import os
import signal
import subprocess
import sys
import time

import ddl_sweep as sweep


def train(trial: sweep.Trial) -> float:
    what = trial.params["what"]
    print(f"now {what}", flush=True)
    with (trial.folder / "attempts").open("a") as file:
        file.write("x")
    attempts = (trial.folder / "attempts").read_text()
    if what == "raises":
        raise LookupError("no such thing")
    if what == "exits":
        sys.exit(3)
    if what == "nan":
        return float("nan")
    if what == "returns nothing":
        return None  # type: ignore[return-value]
    if what == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hangs":
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        (trial.folder / "child").write_text(str(child.pid))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if what == "fails once" and attempts == "x":
        raise LookupError("not the first time")
    return 1.0


if __name__ == "__main__":
    kinds = ["raises", "exits", "nan", "returns nothing", "is killed", "hangs", "fails once", "works"]
    result = sweep.run(
        train, {"what": kinds}, maximize="score", folder=sys.argv[1], retries=1, limit_seconds=3, at_once=4
    )
    print(json.dumps(result.rows))
