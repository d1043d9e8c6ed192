"""The variables on the parameter servers, and the workers' towers over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.checkpoint import COPY
from tf_cnn_benchmarks.cluster.placement import Placement
from tf_cnn_benchmarks.towers import Tower
from tf_cnn_benchmarks.variable_update import Pairs

v1 = tf.compat.v1

MASTERS = "v"
"""The scope of the variables on the servers."""


class ServedVariables:
    """With `copied`, each device of this worker has copies (`v0`, `v1`, ...) of the master variables, which
    the towers read; `refresh` makes them equal to the masters again. Otherwise towers read the masters.
    """

    def __init__(self, placement: Placement, devices: Sequence[str], *, copied: bool) -> None:
        self._placement = placement
        self._devices = list(devices)
        self._copied = copied
        self._copies: list[tuple[Any, Any]] = []

    def build(self, tower: Callable[[int], Tower]) -> list[Tower]:
        """Calls `tower(d)` for each device d, on it."""
        towers = []
        # Towers read their variables more than once in a step: each of them crosses the network once, to
        # the first device.
        cached = None if self._copied else self._devices[0]
        for d, device in enumerate(self._devices):
            getter = self._copy_getter(d, device) if self._copied else None
            scope = v1.variable_scope(
                MASTERS, reuse=v1.AUTO_REUSE, custom_getter=getter, caching_device=cached
            )
            with scope, v1.device(self._placement.on(device)), v1.name_scope(f"tower_{d}/"):
                towers.append(tower(d))
        # Running averages follow the first device; the others' would race with them.
        for other in towers[1:]:
            other.update_ops = []
        return towers

    def build_evaluation(self, tower: Callable[[int], Tower]) -> list[Tower]:
        """Towers over the masters, which checkpoints hold too."""
        towers = []
        for d, device in enumerate(self._devices):
            scope = v1.variable_scope(MASTERS, reuse=True)
            with scope, v1.device(self._placement.on(device)), v1.name_scope(f"evaluation_{d}/"):
                towers.append(tower(d))
        return towers

    def _copy_getter(self, number: int, device: str) -> Callable[..., Any]:
        """Makes the master on its server, and gives the tower a copy on the device."""

        def get(getter: Any, name: str, *arguments: Any, **options: Any) -> Any:
            master = getter(name, *arguments, **options)
            copies = {c.op.name: c for m, c in self._copies if m is master}
            copy_name = COPY.sub(f"v{number}/", name)
            if copy_name in copies:
                return copies[copy_name]
            with tf.device(None), tf.device(device):
                copy = v1.Variable(
                    v1.zeros_initializer()(master.shape, master.dtype),
                    trainable=False,
                    use_resource=True,
                    name=copy_name,
                    collections=[v1.GraphKeys.LOCAL_VARIABLES],
                )
            self._copies.append((master, copy))
            return copy

        return get

    def master_of(self, variable: Any) -> Any:
        """The master of a copy; a master itself as it is."""
        return next((master for master, copy in self._copies if copy is variable), variable)

    def mean_pairs(self, towers: Sequence[Tower]) -> Pairs:
        """The mean gradient over this worker's devices, with the master that it is for."""
        pairs = []
        for column in zip(*(t.gradients for t in towers), strict=True):
            gradients = [g for g, _ in column]
            with tf.device(self._devices[0]):
                mean = gradients[0] if len(gradients) == 1 else tf.add_n(gradients) / len(gradients)
            pairs.append((mean, self.master_of(column[0][1])))
        return pairs

    def averages(self, towers: Sequence[Tower]) -> list[Any]:
        """Operators that bring the running averages of batch normalisation to their masters."""
        updates = list(towers[0].update_ops)
        if not self._copied:
            return updates
        pushed = []
        with tf.control_dependencies(updates):
            for master, copy in self._copies:
                first = copy.op.name.startswith("v0/")
                if first and not master.trainable:
                    with tf.device(copy.device):
                        value = copy.read_value()
                    with tf.device(master.device):
                        pushed.append(master.assign(value, read_value=False))
        return [*updates, *pushed]

    def refresh(self, after: Sequence[Any] = ()) -> list[Any]:
        """Operators that read the masters, after the given ones, into the copies."""
        copied = []
        # Each crosses the network once, to the first device.
        arrived: dict[str, Any] = {}
        for master, copy in self._copies:
            if master.name not in arrived:
                with tf.control_dependencies(after), tf.device(master.device):
                    value = master.read_value()
                with tf.device(copy.device):
                    arrived[master.name] = tf.identity(value)
            with tf.device(copy.device):
                copied.append(copy.assign(arrived[master.name], read_value=False))
        return copied
