"""Has the ranks' weights compared between the updates of PyTorch's optimizers.

Compared are the parameters of DistributedDataParallel over DDL's backend, which are the same on all ranks
whenever an optimizer begins an update. Those of FSDP and of tensor and pipeline parallelism differ by design.
An optimizer that wraps others (ZeroRedundancyOptimizer) begins one update with all of them.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import ddl_drift
import numpy as np
import torch
import torch.distributed as distributed
from ddl_drift.torch import Tensors, learning_rate
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

import ddl
from ddl import _drift
from ddl._updates import update

#: Communication hooks with which the ranks' weights differ between two averages.
_LOCAL_HOOKS = ("post_localSGD_hook",)


class GroupRanks:
    """The ranks of a process group, or of a backend, of torch, as `ddl_drift.Ranks`."""

    exclusion = "ddl.exclude_from_drift_check"
    same_figures = (
        "average the figure that a scheduler decides by (all_reduce, divided by the number of ranks) before "
        "the scheduler sees it"
    )

    def __init__(self, group: Any) -> None:
        self._group = group
        self.rank, self.size = group.rank(), group.size()

    def error(self, text: str) -> Exception:
        """See Ranks."""
        return ddl.DDLError(text, 7)

    def start_maximum(self, values: np.ndarray[Any, Any], name: str) -> Callable[[], np.ndarray[Any, Any]]:
        """See Ranks."""
        # torch's integration is needed without its backend, too.
        from ddl.torch._library import backend

        tensor = torch.from_numpy(values)
        group = self._group
        if isinstance(group, distributed.ProcessGroup):
            group = group._get_backend(torch.device("cpu"))
        # Waited for at once: the group has a thread of its own, and calls that the program makes by `ddl`
        # must not come between.
        backend.named_maximum(group, tensor, name).wait()
        return lambda: np.asarray(tensor.numpy())

    def gather(self, values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        """See Ranks."""
        tensor = torch.from_numpy(values)
        gathered = [torch.empty_like(tensor) for _ in range(self._group.size())]
        self._group.allgather([gathered], [tensor]).wait()
        return np.stack([part.numpy() for part in gathered])

    def broadcast(self, values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        """See Ranks."""
        tensor = torch.from_numpy(values.copy())
        options = distributed.BroadcastOptions()
        options.rootRank = 0
        self._group.broadcast([tensor], options).wait()
        return np.asarray(tensor.numpy())


_models: WeakIdKeyDictionary = WeakIdKeyDictionary()  # parameter -> (its DistributedDataParallel, its name)
_watches: weakref.WeakKeyDictionary[Any, _Update] = weakref.WeakKeyDictionary()
_unaveraged = _drift.Unaveraged()


class _Update:
    """The comparisons of an optimizer: one for each model that it updates."""

    def __init__(self) -> None:
        self.begun = False
        self.watches: dict[int, ddl_drift.Watch] = {}


class _Steps(threading.local):
    """The frames of the optimizers' steps that are under way in this thread, the outermost first."""

    def __init__(self) -> None:
        self.open: list[FrameType] = []

    def forget_failed(self, frame: FrameType | None) -> None:
        """Keeps those behind this frame: no hook is called at the end of a step that an error ends."""
        if self.open:
            present = set()
            while frame is not None:
                present.add(id(frame))
                frame = frame.f_back
            self.open = [step for step in self.open if id(step) in present]


_steps = _Steps()


def _by_ddl(group: Any) -> bool:
    return "cpu:ddl" in str(distributed.get_backend_config(group))


def _learning_rate_of(reference: weakref.ref[Any]) -> float | None:
    return learning_rate(reference())


def _before_step(optimizer: Any, _arguments: Any, _named: Any) -> None:
    step = sys._getframe(1)
    _steps.forget_failed(step.f_back)
    if not _steps.open and not torch.compiler.is_compiling():
        if update.unaveraged:
            ddl_drift.exclude(parameter for group in optimizer.param_groups for parameter in group["params"])
        elif not update.nested:
            _compare(optimizer)
    _steps.open.append(step)


def _after_step(_optimizer: Any, _arguments: Any, _named: Any) -> None:
    if _steps.open:
        _steps.open.pop()


def _compare(optimizer: Any) -> None:
    if not ddl.is_initialized() or ddl.size() == 1 or not _drift.enabled():
        return
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    by_model: dict[int, tuple[Any, list[tuple[str, Any]]]] = {}
    for parameter in parameters:
        reference, name = _models.get(parameter, (None, ""))
        model = reference() if reference is not None else None
        if model is not None:
            by_model.setdefault(id(model), (model, []))[1].append((name, parameter))
    if not by_model:
        _check_averaging([parameter for parameter in parameters if not ddl_drift.is_excluded(parameter)])
        return
    _unaveraged.stop()
    state = _watches.setdefault(optimizer, _Update())
    begun, state.begun = state.begun, True
    for key, (model, named) in by_model.items():
        if any(getattr(hook, "__name__", "") in _LOCAL_HOOKS for hook, _ in model._comm_hooks):
            continue
        if model._join_config.enable:
            continue  # some ranks may have no batches any more
        watch = state.watches.get(key)
        if watch is None:
            reference = weakref.ref(optimizer)
            watch = ddl_drift.Watch(
                type(optimizer).__name__,
                GroupRanks(model.process_group),
                functools.partial(_learning_rate_of, reference),
                reference,
            )
            state.watches[key] = watch
        if watch.takes([id(parameter) for _, parameter in named]):
            watch.watch(Tensors(named))
        if begun:
            watch.updated()


def _check_averaging(parameters: Sequence[Any]) -> None:
    if not _unaveraged.needs_updates():
        return
    if distributed.is_available() and distributed.is_initialized() and not _by_ddl(distributed.group.WORLD):
        return
    plain = [
        (f"parameter {index}", parameter)
        for index, parameter in enumerate(parameters)
        if type(parameter) in (torch.nn.Parameter, torch.Tensor)
        and not hasattr(parameter, "_is_flat_param")
        and parameter.grad is not None
    ]
    _unaveraged.updated(Tensors(plain))


def _hook_models() -> None:
    original = DistributedDataParallel.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if _by_ddl(self.process_group):
            reference = weakref.ref(self)
            for name, parameter in self.module.named_parameters():
                if parameter.requires_grad and name not in self.parameters_to_ignore:
                    _models[parameter] = (reference, name)

    DistributedDataParallel.__init__ = __init__


_integrated = False


def integrate() -> None:
    """Hooks DistributedDataParallel and the steps of all optimizers, once."""
    global _integrated
    if _integrated or not distributed.is_available():
        return
    _integrated = True
    _hook_models()
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)
