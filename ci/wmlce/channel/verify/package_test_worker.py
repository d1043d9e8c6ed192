"""Runs the tests of packages inside the build root: `python3 package_test_worker.py JOB.json`.

Like worker.py it runs with the build root's Python (3.9). The answer for a package is written when its tests
have ended, so that one which takes the process with it is known by what is missing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path


def main() -> int:
    import worker  # of the builder, beside this file

    threading.Thread(target=worker._end_with_parent, daemon=True).start()
    sys.meta_path.insert(0, worker._Finder)
    job = json.loads(Path(sys.argv[1]).read_text())
    for key in job["packages"]:
        print(f"== {key}", flush=True)
        answer = {"key": key, "tests": 0, "failed": []}
        try:
            answer["tests"], answer["failed"] = worker.run_tests(job["channel"], key, worker._LogLines())
        except Exception as error:  # whatever a test can do
            answer["failed"] = [f"{type(error).__name__}: {error}"]
        print(f"@answer {json.dumps(answer)}", flush=True)
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # as in worker.py
    os._exit(status)
