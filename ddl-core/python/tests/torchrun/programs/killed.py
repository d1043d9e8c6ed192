"""Rank VICTIM kills itself, on the first start of the job, between two calls."""

import os
import signal
import sys
import time

import ddl
import numpy as np

ddl.allreduce(np.ones(1))
again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
if not again and ddl.rank() == int(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
began = time.monotonic()
try:
    # one write: torchrun starts Python unbuffered, where print makes two, and another rank's gets in between
    sys.stdout.write(f"sum {ddl.allreduce(np.full(1, ddl.rank() + 1.0))[0]:g}\n")
except ddl.DDLError as error:
    sys.stdout.write(f"survivor {error.code} {error}\n")
    assert time.monotonic() - began < 10
