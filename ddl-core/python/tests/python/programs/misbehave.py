"""One rank does something else than the others; everybody reports the error it gets, and the next call's.

Arguments: the case, the rank that misbehaves. Prints "error RANK SECONDS CODE TEXT" and
"again RANK CODE SAME".
"""

import os
import signal
import sys
import time

import ddl
import numpy as np

case, culprit = sys.argv[1], int(sys.argv[2])
me = ddl.rank() == culprit
x = np.ones(10, "f")

ddl.allreduce(x)
start = time.monotonic()
try:
    match case:
        case "count":
            ddl.allreduce(np.ones(11 if me else 10, "f"))
        case "type":
            ddl.allreduce(np.ones(10, "d" if me else "f"))
        case "op":
            ddl.allreduce(x, op="max" if me else "sum")
        case "name":
            ddl.allreduce(x, name="bias" if me else "weights")
        case "kind":
            ddl.barrier() if me else ddl.allreduce(x)
        case "root":
            ddl.bcast(x, root=1 if me else 0)
        case "buffers":
            # Fourteen elements on both sides.
            ddl.allreduce_n([x[:6], x[:8]] if me else [x[:7], x[:7]])
        case "number":
            ddl.allreduce_n([x, x[:0]] if me else [x])
        case "big":
            # Large enough that the others are busy with data when the difference must be seen.
            ddl.allreduce(np.ones(3_000_001 if me else 3_000_000, "f"))
        case "fewer":
            # The others make a call that this rank leaves out: it meets the end of the program.
            if me:
                sys.exit()
            ddl.allreduce(x)
        case "late":
            if me:
                time.sleep(6)
            ddl.allreduce(x)
        case "late-and-stop":
            if me:
                os.kill(os.getpid(), signal.SIGSTOP)
            if ddl.rank() == 0:
                time.sleep(15)
            ddl.allreduce(x)
        case "stop":
            if me:
                os.kill(os.getpid(), signal.SIGSTOP)
            while True:
                ddl.allreduce(np.ones(200_000, "f"))
        case "stop-busy":
            # Stopped somewhere in the midst of moving data.
            if me:
                pid = os.getpid()
                if os.fork() == 0:
                    time.sleep(0.5)
                    os.kill(pid, signal.SIGSTOP)
                    os._exit(0)
            while True:
                # Less than what is followed by a call of DDL's own, which it could be stopped in as well.
                ddl.allreduce(np.ones(1_000_000, "f"))
        case "kill":
            if me:
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                ddl.allreduce(np.ones(200_000, "f"))
        case "raise":
            if me:
                raise ValueError("the culprit's own error")
            while True:
                ddl.allreduce(np.ones(200_000, "f"))
        case "exit":
            if me:
                sys.exit(3)
            while True:
                ddl.allreduce(np.ones(200_000, "f"))
    print(f"no error {ddl.rank()}", flush=True)
except ddl.DDLError as error:
    print(f"error {ddl.rank()} {time.monotonic() - start:.2f} {error.code} {error}", flush=True)
    start = time.monotonic()
    try:
        ddl.barrier()
        print(f"no error {ddl.rank()}", flush=True)
    except ddl.DDLError as second:
        same = str(second) == str(error) and time.monotonic() - start < 0.5
        print(f"again {ddl.rank()} {second.code} {same}", flush=True)
