"""--variable_update inside one process: where variables live, which gradients update them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.all_reduce_spec import parse_spec
from tf_cnn_benchmarks.choices import REPLICATED
from tf_cnn_benchmarks.local_all_reduce import Packing, all_reduce_mean
from tf_cnn_benchmarks.params import Params
from tf_cnn_benchmarks.towers import Tower
from tf_cnn_benchmarks.workers import Workers

v1 = tf.compat.v1

Pairs = list[tuple[Any, Any]]


class VariableUpdate:
    """Builds the towers and the update of their variables.

    With `parameter_server` all devices read the same variables (scope `v`); otherwise each has a copy
    (`v0`, `v1`, ...). ddl and horovod have one device a process, and their copies are in other processes.
    """

    def __init__(
        self, params: Params, devices: Sequence[str], parameter_device: str, workers: Workers
    ) -> None:
        self.kind = params.variable_update
        self.devices = list(devices)
        self._params = params
        self._parameter_device = parameter_device
        self._workers = workers

    @property
    def shared(self) -> bool:
        """Whether there is one copy of the variables however many devices there are."""
        return self.kind == "parameter_server"

    def build(self, tower: Callable[[int], Tower]) -> list[Tower]:
        """Calls `tower(d)` for each device d, on it and in its variable scope."""
        towers = []
        for d, device in enumerate(self.devices):
            scope = v1.variable_scope("v" if self.shared else f"v{d}", reuse=v1.AUTO_REUSE)
            with scope, v1.device(self._placement(device)), v1.name_scope(f"tower_{d}/"):
                towers.append(tower(d))
        if self.shared:
            # The running averages of batch normalisation follow the first device;
            # the others' would race with them.
            for other in towers[1:]:
                other.update_ops = []
        return towers

    def _placement(self, device: str) -> Any:
        if not self.shared:
            return device
        stores = {"VarHandleOp", "VariableV2", "VarIsInitializedOp"}
        return lambda op: self._parameter_device if op.type in stores else device

    def build_evaluation(self, tower: Callable[[int], Tower]) -> list[Tower]:
        """Towers as of `build`, all over the first copy of the variables: the one that checkpoints hold."""
        towers = []
        for d, device in enumerate(self.devices):
            scope = v1.variable_scope("v" if self.shared else "v0", reuse=True)
            with scope, v1.device(self._placement(device)), v1.name_scope(f"evaluation_{d}/"):
                towers.append(tower(d))
        return towers

    def updates(
        self, towers: Sequence[Tower], *, scale: Any = 1.0, exchange: bool = True
    ) -> list[tuple[str, Pairs]]:
        """For each copy of the variables: the device to update it on, and (gradient, variable) to apply.

        `scale` is the loss's, with which gradients travel in float16. Without `exchange` each rank keeps its
        own gradients. Nothing is clipped yet.
        """
        if self.shared:
            mean = _mean_over_towers([t.gradients for t in towers], self._parameter_device)
            updates = [(self._parameter_device, mean)]
        elif self.kind in REPLICATED and len(towers) > 1:
            spec = parse_spec(self._params.all_reduce_spec or default_spec(self.kind))
            gradients = [[g for g, _ in t.gradients] for t in towers]
            means = all_reduce_mean(gradients, self.devices, spec, self._packing(scale))
            updates = [
                (device, [(g, v) for g, (_, v) in zip(mean, t.gradients, strict=True)])
                for device, mean, t in zip(self.devices, means, towers, strict=True)
            ]
        else:
            updates = [(d, t.gradients) for d, t in zip(self.devices, towers, strict=True)]
            if self.kind != "independent" and exchange and len(updates) == 1:
                updates = [(d, self._workers.mean_gradients(pairs)) for d, pairs in updates]
        if self.kind == "collective_all_reduce" and exchange and len(updates) > 1:
            # The devices have their own mean already; the first one exchanges it for all of them.
            with tf.device(self.devices[0]):
                means = [g for g, _ in self._workers.mean_gradients(updates[0][1])]
            updates = [(d, [(g, v) for g, (_, v) in zip(means, p, strict=True)]) for d, p in updates]
        return updates

    def _packing(self, scale: Any) -> Packing:
        params = self._params
        compact = params.use_fp16 and params.compact_gradient_transfer
        return Packing(
            parts=params.gradient_repacking,
            small=params.agg_small_grads_max_bytes,
            group=params.agg_small_grads_max_group,
            scale=scale if compact else None,
        )


def default_spec(kind: str) -> str:
    """The default of --all_reduce_spec. Between hosts nothing should have to pass through a single one."""
    return "xring" if kind == "distributed_all_reduce" else "pscpu"


def clipped(pairs: Pairs, limit: float | None) -> Pairs:
    """Each element of the gradients within +-limit, with --gradient_clip."""
    return pairs if limit is None else [(tf.clip_by_value(g, -limit, limit), v) for g, v in pairs]


def _mean_over_towers(towers: list[Pairs], device: str) -> Pairs:
    if len(towers) == 1:
        return towers[0]
    with tf.device(device):
        return [
            (tf.add_n([g for g, _ in column]) / len(towers), column[0][1])
            for column in zip(*towers, strict=True)
        ]
