"""A script that waits, when it has printed that it has reached a step or an epoch, until a file is there: a
test has the time to kill something meanwhile, on any machine.

    gated.py FILE NUMBER SCRIPT ARGUMENT…
"""

from __future__ import annotations

import builtins
import os
import re
import runpy
import sys
import time
from typing import Any

gate, number, *words = sys.argv[1:]
real_print = builtins.print


def gated_print(*texts: Any, **more: Any) -> None:
    real_print(*texts, **more)
    found = re.search(r" (?:step|epoch) (\d+) loss", " ".join(map(str, texts)))
    until = time.monotonic() + 120
    while found and int(found[1]) >= int(number) and not os.path.exists(gate):
        if time.monotonic() > until:
            sys.exit(f"{gate} did not come")
        time.sleep(0.05)


builtins.print = gated_print
sys.argv = words
runpy.run_path(words[0], run_name="__main__")
