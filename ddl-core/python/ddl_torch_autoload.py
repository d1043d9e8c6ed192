"""What `import torch` loads of DDL: the name of a backend, and where a rank of MPI finds the others.

DDL itself is imported when a process group is made with it; until then nothing is initialised, and groups of
other
backends go on as without DDL.
"""

from __future__ import annotations

import functools
import importlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

_OF_OPEN_MPI = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}
_LAUNCHED = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_IS_SERVED = "TORCHELASTIC_USE_AGENT_STORE"
_RENDEZVOUS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def _describe_ranks(options: Any) -> bool:
    """Sets torch's variables, by which DDL starts without a launcher, from arguments of `init_process_group`;
    whether it did.

    The processes of `torch.multiprocessing.spawn` have no others.
    """
    if options.global_ranks_in_group or options.group_size == 1:
        return False
    if any(name in os.environ for name in (*_LAUNCHED, "RANK", "WORLD_SIZE")):
        return False
    if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
        # init_method="tcp://…"
        store = options.store
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        if not (hasattr(store, "host") and hasattr(store, "port")):
            return False
        os.environ.update(MASTER_ADDR=store.host, MASTER_PORT=str(store.port))
    os.environ.update(RANK=str(options.group_rank), WORLD_SIZE=str(options.group_size))
    return True


def _create(options: Any, _backend_options: Any) -> Any:
    described = _describe_ranks(options)
    if described:
        # Rank 0 serves the store already, as torchrun's agent does otherwise.
        os.environ[_IS_SERVED] = "True"
    try:
        from ddl.torch import _groups

        return _groups.create(options)
    finally:
        if described:
            del os.environ[_IS_SERVED]


def _name_ranks() -> None:
    """Scripts ask for LOCAL_RANK and the like before they make a process group."""
    if "RANK" in os.environ or "WORLD_SIZE" in os.environ:
        return
    if all(theirs in os.environ for theirs in _OF_OPEN_MPI.values()):
        os.environ.update({ours: os.environ[theirs] for ours, theirs in _OF_OPEN_MPI.items()})


class _Asked(threading.local):
    """Whether the process group that is being made in this thread is to be of `ddl`."""

    ddl = False


_asked = _Asked()


def _noting_the_backend(init_process_group: Callable[..., None]) -> Callable[..., None]:
    """torch's `init_process_group`, of whose backend the rendezvous is not told."""

    @functools.wraps(init_process_group)
    def noting(backend: Any = None, *arguments: Any, **named: Any) -> None:
        # "ddl", or "cpu:ddl,cuda:nccl"
        names = {part.rpartition(":")[2] for part in str(backend or "").lower().split(",")}
        _asked.ddl = "ddl" in names
        try:
            init_process_group(backend, *arguments, **named)
        finally:
            _asked.ddl = False

    return noting


def _nobody_has_told() -> bool:
    """Whether MASTER_ADDR and so on are missing, or are those that ddlrun sets for every program."""
    if any(name not in os.environ for name in _RENDEZVOUS):
        return True
    return os.environ.get("DDLRUN_MASTER") == f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"


def _with_master(
    by_environment: Callable[..., Iterator[tuple[Any, int, int]]],
) -> Callable[..., Iterator[tuple[Any, int, int]]]:
    """The `env://` of torch, for ranks of MPI that nobody told MASTER_ADDR and MASTER_PORT."""

    def rendezvous(url: str, *arguments: Any, **named: Any) -> Iterator[tuple[Any, int, int]]:
        launched = any(name in os.environ for name in _LAUNCHED)
        if _asked.ddl and launched and _nobody_has_told():
            from ddl.torch import _rendezvous

            _rendezvous.agree_on_master()
        return by_environment(url, *arguments, **named)

    return rendezvous


def register() -> None:
    """Entry point of the group `torch.backends`: `init_process_group("ddl")` then needs no other import."""
    import torch.distributed as distributed

    if not distributed.is_available():
        return
    distributed.Backend.register_backend("ddl", _create, extended_api=True, devices=["cpu", "cuda"])
    _name_ranks()
    # torch.distributed has a function of the module's name
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    handlers["env"] = _with_master(handlers["env"])
    noting = _noting_the_backend(distributed.init_process_group)
    for module in (distributed, importlib.import_module("torch.distributed.distributed_c10d")):
        module.init_process_group = noting
