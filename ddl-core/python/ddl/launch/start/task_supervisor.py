"""task_supervisor.py PROGRAM ARGUMENT…: the program as a task of a TensorFlow cluster; see tasks.

`ddl/__init__` would load the native library and take this process for a rank of DDL's, so it is not run.
"""

import sys
import types
from pathlib import Path

if __name__ == "__main__":
    package = types.ModuleType("ddl")
    package.__path__ = [str(Path(__file__).resolve().parents[2])]
    sys.modules["ddl"] = package
    from ddl.launch.tasks.supervisor import main

    sys.exit(main(sys.argv[1:]))
