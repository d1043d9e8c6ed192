"""task_supervisor.py PROGRAM ARGUMENT…: the program as a task of a TensorFlow cluster; see tasks.

A file, and no module, so that a rank needs no PYTHONPATH for it.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # instead of this file's folder, whose modules have common names
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from ddlrun.tasks.supervisor import main

    sys.exit(main(sys.argv[1:]))
