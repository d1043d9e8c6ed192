#!/usr/bin/env python3
"""The script path that users' job files know: `python tf_cnn_benchmarks.py --model=resnet50 ...`.

It runs the package of the same name: the one beside it in `src`, else the installed one. Python puts a
script's own folder first on the search path, where this file would hide the package; so it steps aside.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
if (HERE / "src" / "tf_cnn_benchmarks").is_dir():
    sys.path.insert(0, str(HERE / "src"))

from tf_cnn_benchmarks.cli import run  # noqa: E402

if __name__ == "__main__":
    run()
