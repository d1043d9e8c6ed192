"""Runs a training script whose steps call time.sleep, and disturbs them in some runs of the job, which
DDL_RESTART_COUNT counts from 0. The first argument says how, as `RUN:RANK:STEP` or `RUN:SECONDS`:

    0:1:17     in the first run rank 1 is killed at its 17th step
    1:0.3      in the second run every step takes 0.3 s more
"""

import os
import runpy
import signal
import sys
import time

plans, script = sys.argv[1].split(","), sys.argv[2]
sys.argv = sys.argv[2:]
sys.path[0] = os.path.dirname(script)
sleep = time.sleep
steps = 0


def step(seconds: float) -> None:
    global steps
    if sys._getframe(1).f_code.co_filename != script:
        return sleep(seconds)  # not the script's
    steps += 1
    for plan in plans:
        run, *rest = plan.split(":")
        if run != os.environ.get("DDL_RESTART_COUNT"):
            continue
        if len(rest) == 1:
            seconds += float(rest[0])
        elif rest == [os.environ["RANK"], str(steps)]:
            os.kill(os.getpid(), signal.SIGKILL)
    return sleep(seconds)


time.sleep = step
runpy.run_path(script, run_name="__main__")
