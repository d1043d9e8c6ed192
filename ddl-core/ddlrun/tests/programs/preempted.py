"""Waits for a signal, says which one came to this rank, and ends well; at SIGTERM after a last checkpoint."""

import os
import signal
import sys
import time

RANK, HOST = os.environ["RANK"], os.uname().nodename


def told(number: int, _: object) -> None:
    if number == signal.SIGTERM:
        time.sleep(1.5)  # longer than mpirun and srun wait by themselves
    print(f"{RANK} on {HOST} got {signal.Signals(number).name}", flush=True)
    sys.exit(0)


for name in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(name, told)
print(f"{RANK} is ready", flush=True)
time.sleep(60)
sys.exit("no signal came")
