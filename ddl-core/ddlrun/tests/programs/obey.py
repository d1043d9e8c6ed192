"""Rank RANK does what is said, the others wait: `obey.py RANK exit 7`, `obey.py RANK signal 9`."""

import os
import sys
import time

rank, deed, number = sys.argv[1:4]
print(f"rank {os.environ['PMIX_RANK']} is here", flush=True)
if os.environ["PMIX_RANK"] == rank:
    time.sleep(0.5)
    print("the end is near", file=sys.stderr, flush=True)
    if deed == "exit":
        sys.exit(int(number))
    os.kill(os.getpid(), int(number))
time.sleep(60)
