"""Rank 2 is lost within an all-reduce on GPUs that the others wait in: its stream never comes to the call.

Arguments: how it is lost, "exit" or "stop". The others print `error RANK SECONDS CODE TEXT`.
"""

import ctypes
import os
import signal
import sys
import threading
import time

import ddl

CULPRIT = 2
cuda = ctypes.CDLL("libcuda.so.1")
lib = ctypes.CDLL("libddl.so.2")
lib.ddl_last_error.restype = ctypes.c_char_p


def done(status: int) -> None:
    assert status == 0, (status, lib.ddl_last_error())


def all_reduce(address: ctypes.c_uint64) -> int:
    return int(lib.ddl_allreduce(ctypes.c_void_p(address.value), ctypes.c_size_t(1000), 0, 0))


def lose() -> None:
    time.sleep(1)
    if sys.argv[1] == "exit":
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP)


rank = ddl.rank()
context, address = ctypes.c_void_p(), ctypes.c_uint64()
done(cuda.cuInit(0))
done(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), rank))
done(cuda.cuCtxSetCurrent(context))
done(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4000)))
done(all_reduce(address))
if rank == CULPRIT:
    done(cuda.stand_in_stick(None, 1))
    threading.Thread(target=lose, daemon=True).start()
    print("pid", os.getpid(), flush=True)
began = time.monotonic()
code = all_reduce(address)
text = lib.ddl_last_error().decode()
print("error", rank, f"{time.monotonic() - began:.1f}", code, text, flush=True)
time.sleep(1)  # the others' lines come first
os._exit(1)
