"""Imports frameworks in an order, and trains one step with each: `python train_in_order.py JOB.json`.

It runs with the Python of an environment and needs numpy alone. Each line of its output is one stage that
begins or ends, so that also after a crash the last line tells where it was.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from pathlib import Path
from typing import Any

STAGE = "@stage "
OPENMP = re.compile(r"/lib(?:gomp|iomp5?|omp5?)(?:-[0-9a-f]+)?\.so")
"""Runtimes of OpenMP, by their files; a wheel's copy has a hash in its name."""


def main() -> int:
    job: list[dict[str, str]] = json.loads(Path(sys.argv[1]).read_text())
    places: dict[str, dict[str, Any]] = {}
    for stage in ("import", "step"):
        for framework in job:
            print(f"{STAGE}{stage} {framework['name']}", flush=True)
            space = places.setdefault(framework["name"], {})
            if stage == "step":
                space |= data()
            try:
                exec(compile(framework[stage], f"{framework['name']}: {stage}", "exec"), space)
                if stage == "step":
                    before, after = float(space["before"]), float(space["after"])
                    if not after < before:
                        raise ArithmeticError(f"the loss did not fall: {before:g}, then {after:g}")
                if len(runtimes := openmp_runtimes()) > 1:
                    raise RuntimeError(
                        f"the process has {len(runtimes)} runtimes of OpenMP: {', '.join(runtimes)}"
                    )
            except BaseException as error:
                traceback.print_exc()
                print(f"{STAGE}failed {type(error).__name__}: {error}".splitlines()[0], flush=True)
                return 1
    print(f"{STAGE}done -", flush=True)
    return 0


def openmp_runtimes() -> list[str]:
    """The files of those that this process has loaded; each has threads of its own."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split(maxsplit=5)[5] for line in maps if OPENMP.search(line)})


def data() -> dict[str, Any]:
    """The same for all: y follows from x."""
    import numpy

    x = numpy.random.RandomState(1).rand(32, 4).astype(numpy.float32)
    y = x @ numpy.array([0.5, -1, 1.5, -2], numpy.float32)
    return {"x": x, "y": y}


if __name__ == "__main__":
    sys.exit(main())
