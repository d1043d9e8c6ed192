"""`python -m …probe.traffic SECONDS`: all-reduces of DDL among all ranks, so that ports are used."""

from __future__ import annotations

import sys
import time

import ddl
import numpy as np

_ELEMENTS = 4 << 20


def main(seconds: float) -> int:
    data, late = np.zeros(_ELEMENTS, np.float32), np.zeros(1, np.int32)
    end = time.monotonic() + seconds
    # one rank's clock decides for all
    while not late[0]:
        data = ddl.allreduce(data)
        late = ddl.allreduce(np.array([time.monotonic() > end], np.int32), op="max")
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
