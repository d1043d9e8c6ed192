"""What `import ddl` does by itself: initialise under a launcher, finalise at exit."""

from __future__ import annotations

import atexit
import json
import os
import sys

from ddl import _core
from ddl._errors import DDLError
from ddl.launch.rank_variables import MPI_RANK

#: Set for the children of a rank, which inherit the launcher's variables but are no ranks. libddl reads it.
_MARK = "DDL_RANK_PROCESS"

_LAUNCHER_VARIABLES = (*MPI_RANK, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def _is_child_of_rank() -> bool:
    namespace = os.environ.get("PMIX_NAMESPACE", "")
    pid, _, of = os.environ.get(_MARK, "").partition(":")
    return bool(namespace) and of == namespace and pid != str(os.getpid())


def launched() -> bool:
    """Whether a launcher started this process as a rank. After init() torchrun counts as one."""
    return any(variable in os.environ for variable in _LAUNCHER_VARIABLES) and not _is_child_of_rank()


def prepare(options: str | None) -> None:
    """Sees to it that MPI can start: does something only where torch's variables describe ranks."""
    if _core.is_initialized() or "WORLD_SIZE" not in os.environ or _is_child_of_rank():
        return
    from ddl import bootstrap

    bootstrap.prepare(options)


def _at_exit() -> None:
    if not _core.is_initialized():
        return
    died = getattr(sys, "last_value", None) is not None and _core.size() > 1
    if died and json.loads(_core.describe())["failure"] is None:
        # An uncaught exception ends this rank. Leaving MPI unfinalised lets the launcher end the others at
        # once; finalising would wait for them, and they for this one. (After a failure of DDL itself, which
        # all ranks know, it does not.)
        return
    try:
        _core.finalize()
    except DDLError as error:
        print(error, file=sys.stderr)


def register() -> None:
    """Marks this process for its children and has it finalised at exit. May be called any number of times."""
    if launched():
        namespace = os.environ.get("PMIX_NAMESPACE")
        if namespace:
            os.environ[_MARK] = f"{os.getpid()}:{namespace}"
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)


def auto_init() -> None:
    """Initialises unless DDL_AUTO_INIT=0."""
    if os.environ.get("DDL_AUTO_INIT", "1").strip().lower() in ("0", "no", "off", "false"):
        return
    prepare(None)
    _core.init(None)
    register()
