"""A script that waits, when it has printed that it has reached certain steps or epochs, until a file named
after each is there: a test has the time to kill something meanwhile, on any machine.

    gated.py FOLDER NUMBER,… SCRIPT ARGUMENT…
"""

from __future__ import annotations

import builtins
import os
import re
import runpy
import sys
import time
from typing import Any

folder, numbers, *words = sys.argv[1:]
gates = [int(number) for number in numbers.split(",")]
real_print = builtins.print


def gated_print(*texts: Any, **more: Any) -> None:
    real_print(*texts, **more)
    found = re.search(r" (?:step|epoch) (\d+) loss", " ".join(map(str, texts)))
    until = time.monotonic() + 120
    closed = [gate for gate in gates if found and int(found[1]) >= gate]
    while closed := [gate for gate in closed if not os.path.exists(f"{folder}/open-{gate}")]:
        if time.monotonic() > until:
            sys.exit(f"gates {closed} were not opened")
        time.sleep(0.05)


builtins.print = gated_print
sys.argv = words
runpy.run_path(words[0], run_name="__main__")
