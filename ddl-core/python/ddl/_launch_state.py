"""What `import ddl` does by itself: initialise under a launcher, finalise at exit."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  its end of threads must be registered before ours
import json
import os
import sys
import threading
import time
import weakref
from types import FrameType
from typing import NoReturn

from ddlrun.rank_variables import MPI_RANK, of_mpi

from ddl import _core
from ddl._errors import DDLError

#: Set for the children of a rank, which inherit the launcher's variables but are no ranks. libddl reads it.
_MARK = "DDL_RANK_PROCESS"

#: So long a rank that ends waits for calls that it has started, and so much it tells of its exception.
_GRACE_S = 1.0
_REASON = 200

_registered: list[bool] = []
# Of the sys.exit that ends the program.
_exit_code: object = None
_exit_cause = ""

_WAY_TO_JOB = ("PMIX_NAMESPACE", "PMIX_SERVER_URI")
_LAUNCHER_VARIABLES = (*MPI_RANK, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def _is_child_of_rank() -> bool:
    pid, colon, job = os.environ.get(_MARK, "").partition(":")
    return bool(colon) and job == os.environ.get("PMIX_NAMESPACE", job) and pid != str(os.getpid())


def launched() -> bool:
    """Whether a launcher started this process as a rank. After init() torchrun counts as one."""
    return any(variable in os.environ for variable in _LAUNCHER_VARIABLES) and not _is_child_of_rank()


def _state() -> int | None:
    """The file that all programs of a rank of ddlrun share (see ddlrun/start/rank_start.py)."""
    try:
        number = int(os.environ.get("DDLRUN_STATE", ""))
        return number if os.readlink(f"/proc/self/fd/{number}").startswith("/memfd:ddl-rank") else None
    except (ValueError, OSError):
        return None


def _succeeds_another() -> bool:
    """Whether an earlier program of this rank has started MPI, which a launcher lets a rank do once."""
    state = _state()
    return state is not None and os.pread(state, 1, 0) == b"1" and not _is_child_of_rank()


def prepare(options: str | None) -> None:
    """Sees to it that MPI can start: does something only where torch's variables describe ranks."""
    if _core.is_initialized() or "WORLD_SIZE" not in os.environ or _is_child_of_rank():
        return
    from ddl import bootstrap

    if not _succeeds_another():
        bootstrap.prepare(options)
        return
    # MPI gets its start as under torchrun, without the launcher.
    of_launcher = {
        name: value for name, value in os.environ.items() if of_mpi(name) and name != "PMIX_PREFIX"
    }
    for name in of_launcher:
        del os.environ[name]
    bootstrap.prepare(options)
    # which programs read
    os.environ.update(
        {name: text for name, text in of_launcher.items() if name.startswith("OMPI_COMM_WORLD_")}
    )


class _Exit(SystemExit):
    """What sys.exit raises in the main thread of a rank. Python keeps no trace of one that ends the program.
    But when that is forgotten, no function runs any more; where it was caught, one does.
    """

    def __init__(self, code: object = None) -> None:
        super().__init__(code)
        # An exception that the program has caught, and for which it ends, such as that another rank is lost.
        cause = " ".join(str(sys.exc_info()[1] or "").split())
        weakref.finalize(self, _forgotten, code, cause and f", after {cause}").atexit = False


def _forgotten(code: object, cause: str) -> None:
    global _exit_code, _exit_cause
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") == "weakref":
        frame = frame.f_back
    _exit_code, _exit_cause = (code, cause) if frame is None else (None, "")


def _leave_program(code: object = None, /) -> NoReturn:
    # threading knows the very class only
    raise (_Exit if threading.current_thread() is threading.main_thread() else SystemExit)(code)


def _reason() -> str | None:
    """What ends this rank in a few words; None where it is no failure, or all ranks know."""
    value: object = getattr(sys, "last_value", None)
    if value is None and _exit_code not in (None, 0, False):
        value = _exit_code
    if value is None or _core.size() == 1:
        return None
    try:
        if json.loads(_core.describe())["failure"] is not None:
            return None
    except DDLError:
        pass  # a call is held up
    text = " ".join(str(value).split())
    kind = type(value).__name__
    if value is _exit_code:
        kind = "sys.exit"
        text += _exit_cause
    return kind + (f": {text[:_REASON]}" if text else "")


def _leave(reason: str) -> None:
    """Ends this rank's part: nobody is waited for, the others learn of it, and calls under way fail.

    As MPI stays unfinalised, the launcher ends the others as soon as this process has ended.
    """
    arrays = sys.modules.get("ddl._arrays")
    if arrays is not None:
        arrays.keep_under_way()
    try:
        _core.abort(reason)
    except DDLError:
        pass  # the launcher will see


def _before_threads_are_joined() -> None:
    """The interpreter waits for its threads, of which one may be in a call that waits for other ranks."""
    if not _core.is_initialized() or not _core.busy():
        return
    reason = _reason()
    if reason is not None:
        _leave(reason)


def _at_exit() -> None:
    if not _core.is_initialized():
        return
    reason = _reason()
    if reason is None:
        # Calls that the program has not waited for: the other ranks have mostly come to them, too.
        limit = time.monotonic() + _GRACE_S
        while _core.busy() and time.monotonic() < limit:
            time.sleep(0.01)
        if _core.busy():
            reason = "it ended while a call was under way"
    if reason is not None:
        # Finalising would wait for the others, and they for this one. (After a failure of DDL itself, which
        # all ranks know, it does not.)
        _leave(reason)
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
            state = _state()
            if state is not None:
                os.pwrite(state, b"1", 0)
            # MPI runs, and needs them no more. A child that starts MPI would join the job by them, as this
            # very rank.
            for name in [name for name in os.environ if name.startswith(_WAY_TO_JOB)]:
                del os.environ[name]
    finalise_at_exit()


def finalise_at_exit() -> None:
    """Has DDL, if it runs then, finalised when the program ends. May be called any number of times."""
    sys.exit = _leave_program
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    before_joining = getattr(threading, "_register_atexit", None)  # which concurrent.futures uses, too
    if before_joining is not None and not _registered:
        before_joining(_before_threads_are_joined)
        _registered.append(True)


def auto_init() -> None:
    """Initialises unless DDL_AUTO_INIT=0."""
    if os.environ.get("DDL_AUTO_INIT", "1").strip().lower() in ("0", "no", "off", "false"):
        return
    prepare(None)
    _core.init(None)
    register()
