"""One of Accelerate's own test scripts on a backend.

Arguments: a backend, the script's name, and what is changed in it: FUNCTION=skip, which is then not run, or
FUNCTION=local, in which each rank trains a model of its own.
"""

import functools
import importlib
import sys

import ddl
import torch.distributed as dist

backend, name, *changes = sys.argv[1:]
script = importlib.import_module(f"accelerate.test_utils.scripts.{name}")
for change in changes:
    function, kind = change.split("=")
    original = getattr(script, function)

    @functools.wraps(original)
    def changed(*args, kind=kind, original=original, **kwargs):
        if kind == "local":
            with ddl.no_averaging():
                return original(*args, **kwargs)
        return None

    setattr(script, function, changed)
dist.init_process_group(backend)
script.main()
print("script ended")
