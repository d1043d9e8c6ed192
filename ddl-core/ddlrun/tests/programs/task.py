"""A task of a cluster as TF_CONFIG has it, without TensorFlow: it tells what it was told, listens at its
address, and does what its rules say.

    task.py [TASK[@START]=DEED …]     TASK as worker.1; START: only at that one, from 0
    DEED: end · serve (for ever) · exit.N · signal.N · reach (connect to all tasks, end)
          · meet (the same, and wait for all workers, which have to meet too)
          · save (serve; at SIGTERM connect to all parameter servers, end)

Parameter servers serve and others end, unless a rule says something else.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import Any

config: dict[str, Any] = json.loads(os.environ["TF_CONFIG"])
kind, index = config["task"]["type"], config["task"]["index"]
start = os.environ.get("DDL_RESTART_COUNT", "0")
rules = dict(word.split("=") for word in sys.argv[1:])
deed = rules.get(f"{kind}.{index}@{start}", rules.get(f"{kind}.{index}", "serve" if kind == "ps" else "end"))


def connect(address: str) -> None:
    """To a task that may not be up yet."""
    host, _, port = address.rpartition(":")
    until = time.monotonic() + 20
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def save(*_: object) -> None:
    time.sleep(0.3)  # parameter servers that got SIGTERM too would be gone now
    for address in config["cluster"]["ps"]:
        connect(address)
    print(f"{kind} {index} saved", flush=True)
    os._exit(0)


if deed == "save":
    signal.signal(signal.SIGTERM, save)
listening = socket.create_server(("", int(config["cluster"][kind][index].rpartition(":")[2])))
told = {
    "task": f"{kind} {index}",
    "start": start,
    "reason": os.environ.get("DDL_RESTART_REASON", ""),
    "pid": os.getpid(),
    "supervisor": os.getppid(),
    "host": os.uname().nodename,
    "config": config,
    "rank": os.environ.get("RANK"),
    "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
    "cpus": sorted(os.sched_getaffinity(0)),
    "launcher": sorted(name for name in os.environ if name.startswith(("PMIX_", "OMPI_COMM_WORLD_"))),
}
sys.stdout.write(f"{json.dumps(told)}\n")
sys.stdout.flush()
verb, _, number = deed.partition(".")
if verb == "exit":
    sys.exit(int(number))
if verb == "signal":
    os.kill(os.getpid(), int(number))
if verb in ("reach", "meet"):
    for of in config["cluster"].values():
        for address in of:
            connect(address)
    listening.settimeout(20)
    for _ in config["cluster"]["worker"] if verb == "meet" else ():
        listening.accept()[0].close()
    print(f"{kind} {index} has reached all", flush=True)
while verb in ("serve", "save"):
    time.sleep(60)
