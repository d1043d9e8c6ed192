"""What `import torch` loads of DDL: the name of a backend, and where a rank of MPI finds the others.

DDL itself is imported when a process group is made with it; until then nothing is initialised.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any

_OF_OPEN_MPI = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}
_LAUNCHED = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_MEETING_PLACE = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def _create(options: Any, _backend_options: Any) -> Any:
    from ddl.torch import _groups

    return _groups.create(options)


def _name_ranks() -> None:
    """Scripts ask for LOCAL_RANK and the like before they make a process group."""
    if "RANK" in os.environ or "WORLD_SIZE" in os.environ:
        return
    if all(theirs in os.environ for theirs in _OF_OPEN_MPI.values()):
        os.environ.update({ours: os.environ[theirs] for ours, theirs in _OF_OPEN_MPI.items()})


def _with_meeting_place(
    by_environment: Callable[..., Iterator[tuple[Any, int, int]]],
) -> Callable[..., Iterator[tuple[Any, int, int]]]:
    """The `env://` of torch, for ranks of MPI that nobody told MASTER_ADDR and MASTER_PORT."""

    def rendezvous(url: str, *arguments: Any, **named: Any) -> Iterator[tuple[Any, int, int]]:
        launched = any(name in os.environ for name in _LAUNCHED)
        if launched and any(name not in os.environ for name in _MEETING_PLACE):
            from ddl.torch import _groups

            _groups.agree_on_meeting_place()
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
    handlers["env"] = _with_meeting_place(handlers["env"])
