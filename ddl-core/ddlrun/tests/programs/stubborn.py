"""Ranks that are hard to get rid of: they ignore polite signals; rank 1 leaves children in other sessions,
one without the environment and without the parent it came from.
"""

import os
import signal
import subprocess
import time

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    for words in (["sleep", "4343"], ["env", "-i", "sh", "-c", "sleep 4343 & sleep 4343"]):
        subprocess.Popen(["setsid", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print("up", os.getpid(), flush=True)
time.sleep(300)
