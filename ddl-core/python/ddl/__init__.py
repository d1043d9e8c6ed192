"""DDL: an all-reduce that knows the shape of the cluster.

One process is one rank. Under a launcher (ddlrun, mpirun, srun) importing this package initialises DDL,
unless DDL_AUTO_INIT=0 is set; without one it makes a world of size 1 and never touches MPI.

    import ddl, numpy as np
    x = np.full(3, ddl.rank() + 1.0, "f")
    print(ddl.allreduce(x))          # the sum over all ranks, on every rank

Collective calls (allreduce…, bcast…, barrier, finalize) must be made by every rank in the same order with
arrays of the same sizes and types. A difference is an error on every rank that names the ranks and both
sides; a rank that does not come within the time limit (DDL_OPTIONS="-timeout SECONDS", 300 by default) is an
error that names it.

Element types: float32, float16, float64, bfloat16 (of ml_dtypes), int32, int64. Reductions: "sum", "min",
"max", "product", "avg". Results are bitwise equal on all ranks. 16-bit types are reduced in float32; the
average of integers is the sum divided towards zero.

TensorFlow tensors are handed to ddl.tensorflow, of the package ddl-tensorflow; see there for what importing
ddl does to optimizers.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddl import _core, _former_names, _hooks, _launch_state
from ddl._errors import DDLError
from ddl._restart import checkpoint_dir, restart_count, restart_reason

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

    from ddl._arrays import PendingArray
    from ddl._drift import exclude_from_drift_check
    from ddl._updates import no_averaging
    from ddl.keras import (
        DDLBackupAndRestore,
        DDLCallback,
        DDLGlobalVariablesCallback,
        DDLModelCheckpoint,
        LearningRateWarmupCallback,
        accumulate_gradients,
        on_rank_0,
    )
    from ddl.tensorflow import (
        DistributedGradientTape,
        broadcast_enabled,
        broadcast_variables,
        disable_broadcast,
        enable_broadcast,
        grads_reduce,
        no_broadcast,
        per_rank_batch_size,
        shard,
    )

__version__ = _core.VERSION

#: Names served from the framework packages, which are only imported when asked for.
_LAZY = {
    "DDLBackupAndRestore": "ddl.keras",
    "DDLCallback": "ddl.keras",
    "DDLGlobalVariablesCallback": "ddl.keras",
    "DDLModelCheckpoint": "ddl.keras",
    "DistributedGradientTape": "ddl.tensorflow",
    "LearningRateWarmupCallback": "ddl.keras",
    "accumulate_gradients": "ddl.keras",
    "broadcast_enabled": "ddl.tensorflow",
    "broadcast_variables": "ddl.tensorflow",
    "disable_broadcast": "ddl.tensorflow",
    "enable_broadcast": "ddl.tensorflow",
    "exclude_from_drift_check": "ddl._drift",
    "grads_reduce": "ddl.tensorflow",
    "no_averaging": "ddl._updates",
    "no_broadcast": "ddl.tensorflow",
    "on_rank_0": "ddl.keras",
    "per_rank_batch_size": "ddl.tensorflow",
    "shard": "ddl.tensorflow",
}
_SUBPACKAGES = ("keras", "pyddl", "sweep", "tensorflow", "torch")

__all__ = [
    "DDLBackupAndRestore",
    "DDLCallback",
    "DDLError",
    "DDLGlobalVariablesCallback",
    "DDLModelCheckpoint",
    "DistributedGradientTape",
    "LearningRateWarmupCallback",
    "accumulate_gradients",
    "all_gather",
    "all_to_all",
    "allreduce",
    "allreduce_",
    "allreduce_n",
    "allreduce_plain",
    "allreduce_start",
    "barrier",
    "bcast",
    "bcast_",
    "broadcast_enabled",
    "broadcast_variables",
    "checkpoint_dir",
    "describe",
    "disable_broadcast",
    "enable_broadcast",
    "exclude_from_drift_check",
    "finalize",
    "flight_record",
    "grads_reduce",
    "host_index",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "no_averaging",
    "no_broadcast",
    "num_hosts",
    "on_rank_0",
    "per_rank_batch_size",
    "predict",
    "rank",
    "reduce",
    "reduce_scatter",
    "restart_count",
    "restart_reason",
    "shard",
    "size",
    "stats",
]


def __getattr__(name: str) -> Any:
    module = f"ddl.{name}" if name in _SUBPACKAGES else _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'ddl' has no attribute {name!r}")
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        if error.name != module:
            raise
        if not isinstance(error, ModuleNotFoundError):
            raise AttributeError(str(error)) from None  # a former name, which says what to install
        package = "ddl-pytorch" if name == "torch" else "ddl-tensorflow"
        raise AttributeError(f"ddl.{name} needs the package {package}, which is not installed") from None
    value = loaded if name in _SUBPACKAGES else getattr(loaded, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBPACKAGES})


def init(options: str | None = None, comm: Comm | None = None) -> None:
    """Initialises DDL, or has it obey these options as well where that has happened. Collective.

    Args:
        options: As in DDL_OPTIONS, for example "-mode p:2x2 -timeout 60". They prevail over those of
            DDL_OPTIONS, which give the rest.
        comm: A communicator of mpi4py: rank() and size() are then those in it, and only its ranks call. None
            is MPI.COMM_WORLD. As importing ddl initialises over that one under a launcher, DDL_AUTO_INIT=0
            must be set before to take fewer ranks.

    Raises:
        DDLError: Invalid options, an MPI that does not belong to the launcher or is not mpi4py's, a full
            /dev/shm, a missing rank, or other ranks or options than those that DDL has made calls with.
    """
    if comm is None:
        _launch_state.prepare(options)
        _core.init(options)
    else:
        from mpi4py import MPI

        _core.init_comm(options, comm.py2f(), MPI.Get_library_version())
    _launch_state.register()


def finalize() -> None:
    """Waits for all ranks and releases everything; happens by itself at exit. Collective."""
    _core.finalize()


def is_initialized() -> bool:
    """Whether DDL is initialised and not yet finalised."""
    return _core.is_initialized()


def rank() -> int:
    """Rank of this process, 0 to size() - 1."""
    return _core.rank()


def size() -> int:
    """Number of ranks."""
    return _core.size()


def local_rank() -> int:
    """Rank of this process among those of its host; selects its device."""
    return _core.local_rank()


def local_size() -> int:
    """Number of ranks on this host."""
    return _core.local_size()


def num_hosts() -> int:
    """Number of hosts."""
    return _core.num_hosts()


def host_index() -> int:
    """Index of this host; hosts are numbered in the order of their lowest ranks."""
    return _core.host_index()


def _is_tensor(x: Any) -> bool:
    # Whoever holds a tensor has imported TensorFlow.
    tensorflow = sys.modules.get("tensorflow")
    is_tensor = getattr(tensorflow, "is_tensor", None)
    return is_tensor is not None and bool(is_tensor(x))


def _tensorflow() -> Any:
    try:
        return importlib.import_module("ddl.tensorflow")
    except ModuleNotFoundError as error:
        if error.name != "ddl.tensorflow":
            raise
        raise DDLError(
            "[ERROR DDL-1-1] TensorFlow tensors need ddl.tensorflow; in ddl; install the package "
            "ddl-tensorflow, or pass numpy arrays",
            1,
        ) from None


def allreduce(x: Any, op: str = "sum", name: str | None = None) -> Any:
    """Reduces an array over all ranks, element by element. Collective.

    Args:
        x: numpy array of any shape and memory order, or what numpy.asarray takes; or a TensorFlow tensor.
        op: "sum", "min", "max", "product" or "avg".
        name: Compared between the ranks: two arrays of equal size in different order become an error.

    Returns:
        A new array of the same shape and type, bitwise the same on all ranks. (A tensor for a tensor.)

    Raises:
        TypeError: An element type that DDL cannot communicate; the text lists those it can.
        ValueError: An unknown op.
        DDLError: The ranks disagree, a rank is missing, or the network failed.
    """
    if _is_tensor(x):
        return _tensorflow().allreduce(x, op=op, name=name)
    from ddl import _arrays

    return _arrays.allreduce(x, op, name)


def allreduce_(x: Any, op: str = "sum", name: str | None = None) -> None:
    """Reduces in place. The array must be numpy's and writeable, but need not be contiguous."""
    from ddl import _arrays

    _arrays.allreduce_in_place(x, op, name)


def allreduce_n(xs: Sequence[Any], op: str = "avg", name: str | None = None) -> list[Any]:
    """Reduces several arrays at once: one grouped operation for each element type among them. Collective.

    Args:
        xs: Arrays as for allreduce; as many, and of the same sizes, on all ranks.
        op: As for allreduce.
        name: As for allreduce.

    Returns:
        New arrays in the order of xs. Errors as for allreduce.
    """
    xs = list(xs)
    if any(_is_tensor(x) for x in xs):
        results: list[Any] = _tensorflow().allreduce_n(xs, op=op, name=name)
        return results
    from ddl import _arrays

    return list(_arrays.allreduce_n(xs, op, name))


def allreduce_plain(x: Any, op: str = "sum") -> Any:
    """Reduces a numpy array by MPI_Allreduce, up to rounding as allreduce: the baseline to compare with."""
    from ddl import _arrays

    return _arrays.allreduce_plain(x, op)


def bcast(x: Any, root: int = 0, name: str | None = None) -> Any:
    """Returns rank root's array on every rank. Collective.

    Args:
        x: As for allreduce; the same size and type on all ranks.
        root: The rank whose values are taken.
        name: As for allreduce.

    Returns:
        A new array of x's shape and type.

    Raises:
        DDLError: root is no rank, or as for allreduce.
    """
    if _is_tensor(x):
        return _tensorflow().bcast(x, root=root, name=name)
    from ddl import _arrays

    return _arrays.bcast(x, root, name)


def bcast_(x: Any, root: int = 0, name: str | None = None) -> None:
    """Overwrites a writeable numpy array with rank root's. Otherwise as bcast."""
    from ddl import _arrays

    _arrays.bcast_in_place(x, root, name)


def allreduce_start(x: Any, op: str = "sum", name: str | None = None, priority: int = 0) -> PendingArray:
    """Starts what allreduce does with a numpy array, and returns; a thread of DDL goes on with it.

    Every rank must start and call the same in the same order, but not at the same time. Small arrays of one
    type and op that all ranks have started are reduced together.

    Args:
        x: As for allreduce, but no tensor. It is copied, so it may be changed at once.
        op: As for allreduce.
        name: As for allreduce.
        priority: Among the calls that all ranks have started, those with the highest are made first.

    Returns:
        A handle: wait() returns the result of allreduce (or raises its DDLError), done() tells whether it
        would wait. A handle that is dropped leaves the call to go on.
    """
    from ddl import _arrays

    return _arrays.allreduce_start(x, op, name, priority)


def reduce(x: Any, op: str = "sum", root: int = 0, name: str | None = None) -> Any:
    """Reduces a numpy array over all ranks for one of them. Collective.

    Returns:
        On rank root what allreduce returns, on the others None. Arguments and errors as for allreduce.
    """
    from ddl import _arrays

    return _arrays.reduce(x, op, root, name)


def reduce_scatter(x: Any, op: str = "sum", name: str | None = None) -> Any:
    """Reduces a numpy array over all ranks and gives each a part of the result. Collective.

    Args:
        x: An array whose first axis is a multiple of size() long.
        op: As for allreduce.
        name: As for allreduce.

    Returns:
        Part rank() of size() equal parts of the reduced array, cut along its first axis.

    Raises:
        ValueError: The first axis cannot be divided. Otherwise as for allreduce.
    """
    from ddl import _arrays

    return _arrays.reduce_scatter(x, op, name)


def all_gather(x: Any, name: str | None = None) -> Any:
    """Gives every rank the arrays of all. Collective.

    Args:
        x: A numpy array, of the same shape and type on all ranks.
        name: As for allreduce.

    Returns:
        An array of shape (size(), *x.shape), rank by rank. Errors as for allreduce.
    """
    from ddl import _arrays

    return _arrays.all_gather(x, name)


def all_to_all(x: Any, name: str | None = None) -> Any:
    """Gives rank b part b of every rank's array. Collective.

    Args:
        x: A numpy array whose first axis is a multiple of size() long; rank b gets part b of size() equal
            parts.
        name: As for allreduce.

    Returns:
        An array of x's shape: the parts of all ranks, rank by rank. Errors as for reduce_scatter.
    """
    from ddl import _arrays

    return _arrays.all_to_all(x, name)


def barrier() -> None:
    """Returns when all ranks have called it. Collective."""
    _core.barrier()


def describe() -> dict[str, Any]:
    """The state of DDL.

    Returns:
        version, rank, size, mode, options, topology (tiers, hosts, tree), transports, staging_bytes (of this
        rank, in shared memory), last (the last call, its algorithm and time), counters (calls, bytes,
        seconds), failure.
    """
    state: dict[str, Any] = json.loads(_core.describe())
    return state


def stats() -> dict[str, Any]:
    """What DDL did since it was initialised.

    Returns:
        calls, bytes (of the arrays), messages_sent and bytes_sent (between hosts, by this rank), seconds
        (total, post, reduce, gather, wait), tiers (how long each was busy), algorithms (calls by algorithm).
    """
    counters: dict[str, Any] = json.loads(_core.stats())
    return counters


def flight_record(path: str | os.PathLike[str]) -> None:
    """Write the flight record of this rank to a file: its last 256 collective calls, as JSON.

    They come with names, sizes, numbers and times. Possible at any time, also while another thread makes a
    call. `ddlrun -read-flight-record FOLDER` makes
    one page of the records (rank-0.json, …) of all ranks. After a failure ddlrun does so by itself.

    Args:
        path: the file, which is replaced as a whole.

    Raises:
        DDLError: it cannot be written, or DDL is not initialised.
    """
    _core.flight_record(os.fspath(path))


def predict(
    cluster: str | os.PathLike[str] | Mapping[str, Any],
    bytes: int = 0,
    ranks: Sequence[int] = (),
    steps: str | os.PathLike[str] | Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Predicts all-reduces and training steps on a cluster that is only described. Local; needs no init.

    Args:
        cluster: Name of a description that comes with DDL ("summit"), path of one, or its content.
        bytes: Of an all-reduce; 0 takes those of steps or of the description.
        ranks: Sizes of jobs; none takes usual ones.
        steps: Step times of a real run to calibrate with: name, path or content.

    Returns:
        predictions (algorithm, ranks, hosts, allreduce_s, step_s, efficiency, bound_by), calibration,
        cluster.

    Raises:
        DDLError: A description is wrong; the text names the place.
    """
    from ddl import _prediction

    return _prediction.predict(cluster, bytes, ranks, steps)


_former_names.install()
_launch_state.auto_init()
if _launch_state.launched():
    _hooks.install()
