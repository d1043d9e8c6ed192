"""The processes that train together, and what they exchange."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tf_cnn_benchmarks.errors import BenchmarkError

Array = npt.NDArray[Any]
GradientAndVariable = tuple[Any, Any]


class Workers(Protocol):
    """All ranks of the job as one rank sees them.

    `mean_gradients` works on graph tensors; `mean` and `broadcast` work at once on numpy arrays (same shape
    and type on every rank) and must be called by all ranks in the same order. Within `no_averaging`
    optimizers take the gradients that they are given.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int

    def mean_gradients(self, pairs: Sequence[GradientAndVariable]) -> list[GradientAndVariable]: ...

    def no_averaging(self) -> AbstractContextManager[None]: ...

    def mean(self, array: Array, name: str) -> Array: ...

    def broadcast(self, array: Array, name: str) -> Array: ...

    def describe(self) -> dict[str, Any]: ...


class OneProcess:
    """No launcher, nothing to exchange."""

    rank = local_rank = 0
    size = local_size = 1

    def mean_gradients(self, pairs: Sequence[GradientAndVariable]) -> list[GradientAndVariable]:
        return list(pairs)

    def no_averaging(self) -> AbstractContextManager[None]:
        return nullcontext()

    def mean(self, array: Array, name: str) -> Array:
        return array

    def broadcast(self, array: Array, name: str) -> Array:
        return array

    def describe(self) -> dict[str, Any]:
        return {}


class DdlWorkers:
    """Ranks started by ddlrun (or mpirun, srun); everything travels through DDL."""

    def __init__(self) -> None:
        try:
            self._ddl = importlib.import_module("ddl")
        except ImportError as error:
            raise BenchmarkError(
                f"--variable_update=ddl needs the Python package ddl ({error}); install it from the channel: "
                "`conda install ddl ddl-tensorflow`"
            ) from None
        import tensorflow  # noqa: F401  # whose import `import ddl` has hooked, to be over before the next

        try:
            self._tensorflow = importlib.import_module("ddl.tensorflow")
        except ImportError as error:
            raise BenchmarkError(
                f"--variable_update=ddl needs ddl.tensorflow ({error}); install it from the channel: "
                "`conda install ddl-tensorflow`"
            ) from None
        self._ddl.init()
        # Initial values are broadcast here once, together with what a checkpoint holds.
        self._tensorflow.disable_broadcast()
        self.rank, self.size = self._ddl.rank(), self._ddl.size()
        self.local_rank, self.local_size = self._ddl.local_rank(), self._ddl.local_size()

    def mean_gradients(self, pairs: Sequence[GradientAndVariable]) -> list[GradientAndVariable]:
        """One grouped operator for all gradients: one agreement and one pass however many there are."""
        if self.size == 1:
            return list(pairs)
        return list(self._tensorflow.grads_reduce(list(pairs), average=True))

    def no_averaging(self) -> AbstractContextManager[None]:
        context: AbstractContextManager[None] = self._tensorflow.no_averaging()
        return context

    def mean(self, array: Array, name: str) -> Array:
        return np.asarray(self._ddl.allreduce(array, op="avg", name=name))

    def broadcast(self, array: Array, name: str) -> Array:
        return np.asarray(self._ddl.bcast(np.atleast_1d(array), root=0, name=name)).reshape(array.shape)

    def describe(self) -> dict[str, Any]:
        return dict(self._ddl.describe())


class HorovodWorkers:
    """Ranks started by horovodrun, ddlrun or mpirun; everything travels through Horovod."""

    def __init__(self, device: str) -> None:
        """device: cpu or gpu, where gradients are exchanged; empty: where they are."""
        self._device = f"/{device}:0" if device else ""
        try:
            self._hvd = importlib.import_module("horovod.tensorflow")
        except ImportError as error:
            raise BenchmarkError(
                f"--variable_update=horovod needs Horovod with TensorFlow ({error}); install it with `conda "
                "install horovod`, or use --variable_update=ddl"
            ) from None
        self._hvd.init()
        self.rank, self.size = self._hvd.rank(), self._hvd.size()
        self.local_rank, self.local_size = self._hvd.local_rank(), self._hvd.local_size()

    def mean_gradients(self, pairs: Sequence[GradientAndVariable]) -> list[GradientAndVariable]:
        # One by one: Horovod fuses what is ready at the same time while the backward pass goes on.
        return [
            (
                self._hvd.allreduce(
                    gradient, op=self._hvd.Average, name=f"gradient_{i}", device_dense=self._device
                ),
                variable,
            )
            for i, (gradient, variable) in enumerate(pairs)
        ]

    def no_averaging(self) -> AbstractContextManager[None]:
        # Its optimizers are wrapped only where a script asks for it, which this program does not.
        return nullcontext()

    def _run(self, operation: Any, array: Array) -> Array:
        """Runs one Horovod operator outside the training graph."""
        import tensorflow as tf

        graph = tf.Graph()
        with graph.as_default():
            result = operation(tf.constant(np.atleast_1d(array)))
            with tf.compat.v1.Session(graph=graph) as session:
                return np.asarray(session.run(result)).reshape(array.shape)

    def mean(self, array: Array, name: str) -> Array:
        return self._run(lambda x: self._hvd.allreduce(x, op=self._hvd.Average, name=name), array)

    def broadcast(self, array: Array, name: str) -> Array:
        return self._run(lambda x: self._hvd.broadcast(x, root_rank=0, name=name), array)

    def describe(self) -> dict[str, Any]:
        return {}


def make_workers(variable_update: str, *, horovod_device: str = "") -> Workers:
    """The workers for that --variable_update; BenchmarkError says what to install."""
    if variable_update == "ddl":
        return DdlWorkers()
    if variable_update == "horovod":
        return HorovodWorkers(horovod_device)
    return OneProcess()


def launched_rank() -> tuple[int, int]:
    """Rank and number of processes by the launcher's environment, before anything is initialised."""
    for rank, size in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")):
        if os.environ.get(rank, "").isdecimal() and os.environ.get(size, "").isdecimal():
            return int(os.environ[rank]), int(os.environ[size])
    # Slurm sets these in a plain batch script too, where they count nothing; a step's id tells them apart.
    if os.environ.get("SLURM_STEP_ID", "").isdecimal() and "PMIX_RANK" in os.environ:
        return int(os.environ.get("SLURM_PROCID", "0")), int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))
    return 0, 1
