"""ChainerMN on DDL: a communicator for `chainermn.create_multi_node_optimizer` and the like.

    import chainermn, ddl_chainer
    comm = ddl_chainer.create_communicator()
    optimizer = chainermn.create_multi_node_optimizer(optimizer, comm)

What training moves in every step, gradients, parameters and statistics, goes by DDL; data sets and objects go
by mpi4py as with ChainerMN's own communicators. Arrays are numpy's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import ddl
import numpy as np
from chainermn.communicators import mpi_communicator_base
from mpi4py import MPI

__all__ = ["DDLCommunicator", "create_communicator"]


def create_communicator(mpi_comm: MPI.Comm | None = None) -> DDLCommunicator:
    """A communicator over the ranks of one of mpi4py, by default of all. Collective.

    Raises:
        ddl.DDLError: DDL runs over other ranks already; see ddl.init.
    """
    return DDLCommunicator(MPI.COMM_WORLD if mpi_comm is None else mpi_comm)


class DDLCommunicator(mpi_communicator_base.MpiCommunicatorBase):  # type: ignore[misc]
    """ChainerMN's interface; see create_communicator. One at a time: DDL has one world."""

    def __init__(self, mpi_comm: MPI.Comm) -> None:
        ddl.init(comm=mpi_comm)
        super().__init__(mpi_comm)
        self._agreed: set[str] = set()

    def split(self, color: int, key: int) -> Any:
        """A communicator of some ranks is ChainerMN's own, by MPI, as DDL has one world."""
        import chainermn

        return chainermn.create_communicator("naive", self.mpi_comm.Split(color, key))

    def multi_node_mean_grad(self, model: Any, zero_fill: bool = False) -> None:
        """Replaces every gradient of the model by its mean over the ranks. Collective.

        Args:
            model: A link whose parameters are the same on all ranks.
            zero_fill: A gradient that a rank has not counts as zero; otherwise parameters without a gradient
                are left out, which must be the same ones on all ranks.

        Raises:
            ValueError: Ranks have gradients of different parameters; names the first one.
        """
        parameters = _parameters(model)
        for _, parameter in parameters:
            if zero_fill and parameter.grad is None:
                parameter.grad = np.zeros_like(parameter.data)
        self._agree([(name, parameter.grad is not None) for name, parameter in parameters])
        _mean_in_place([parameter.grad for _, parameter in parameters if parameter.grad is not None])

    # ChainerMN's older name, which its own updaters may still call.
    allreduce_grad = multi_node_mean_grad

    def bcast_data(self, model: Any) -> None:
        """Gives all ranks the parameters of rank 0. Collective."""
        for name, parameter in _parameters(model):
            ddl.bcast_(parameter.data, root=0, name=name)

    def _multi_node_mean(self, sendbuf: Any, recvbuf: Any) -> None:
        # Called by ChainerMN's batch normalisation and by its extension for statistics.
        if sendbuf is not None:
            recvbuf[...] = sendbuf
        _mean_in_place([recvbuf])

    def _agree(self, have: list[tuple[str, bool]]) -> None:
        """Asks the other ranks when the set of gradients is a new one to this rank."""
        mark = hashlib.sha256(repr(have).encode()).hexdigest()
        if mark in self._agreed:
            return
        mine = np.array([has for _, has in have], np.int64)
        counts = ddl.allreduce(mine, name="parameters that have a gradient")
        for (name, has), count in zip(have, counts.tolist(), strict=True):
            if count not in (0, self.size):
                raise ValueError(
                    f"parameter {name} has a gradient on {count} of {self.size} ranks (on this one: "
                    f"{'yes' if has else 'no'}); use it on every rank, or pass zero_fill=True to "
                    "create_multi_node_optimizer"
                )
        self._agreed.add(mark)


def _parameters(model: Any) -> list[tuple[str, Any]]:
    return [
        (name, parameter) for name, parameter in sorted(model.namedparams()) if parameter.data is not None
    ]


def _mean_in_place(arrays: Iterable[Any]) -> None:
    arrays = list(arrays)
    for array, mean in zip(arrays, ddl.allreduce_n(arrays, op="avg", name="means"), strict=True):
        array[...] = mean
