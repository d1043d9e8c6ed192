"""PyTorch Lightning under ddlrun, mpirun or srun: where Lightning finds the ranks.

    from ddl.torch.lightning import DDLEnvironment

    ranks = DDLEnvironment()
    trainer = Trainer(
        accelerator="cpu",
        devices=ranks.devices,
        num_nodes=ranks.num_nodes,
        strategy=DDPStrategy(process_group_backend="ddl"),
        plugins=[ranks],
    )

Works with the packages `lightning` and `pytorch-lightning`, from version 2.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

import ddl
from ddl import _launch_state

if TYPE_CHECKING:

    class _ClusterEnvironment:
        """Stands in for Lightning's while types are checked: Lightning is no part of the channel."""

else:

    def _imported() -> Any:
        # The two packages have a class each, and know only their own.
        names = ["lightning.fabric", "lightning_fabric"]
        if "lightning_fabric" in sys.modules and "lightning" not in sys.modules:
            names.reverse()
        for name in names:
            try:
                return importlib.import_module(f"{name}.plugins.environments").ClusterEnvironment
            except ModuleNotFoundError as error:
                if error.name not in ("lightning", "lightning_fabric", "lightning.fabric"):
                    raise
        raise ModuleNotFoundError("ddl.torch.lightning needs PyTorch Lightning: pip install lightning")

    _ClusterEnvironment = _imported()


class DDLEnvironment(_ClusterEnvironment):
    """Lightning's ClusterEnvironment for ranks that are started by ddlrun, mpirun or srun.

    Initialises DDL, so making one is collective. Lightning then starts no processes of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        ddl.init()

    @property
    def devices(self) -> int:
        """Ranks on this host: `Trainer(devices=…)`."""
        return ddl.local_size()

    @property
    def num_nodes(self) -> int:
        """Hosts of the job: `Trainer(num_nodes=…)`."""
        return ddl.num_hosts()

    @property
    def creates_processes_externally(self) -> bool:
        """Always: the ranks run already."""
        return True

    @property
    def main_address(self) -> str:
        """MASTER_ADDR, an address of rank 0's host that all hosts reach."""
        return self._master("MASTER_ADDR")

    @property
    def main_port(self) -> int:
        """MASTER_PORT, where torch's store listens."""
        return int(self._master("MASTER_PORT"))

    def _master(self, name: str) -> str:
        if name not in os.environ:
            from ddl.torch import _rendezvous

            _rendezvous.agree_on_master()
        return os.environ[name]

    @staticmethod
    def detect() -> bool:
        """Whether a launcher of MPI ranks started this process."""
        return _launch_state.launched()

    def world_size(self) -> int:
        """Number of ranks."""
        return ddl.size()

    def set_world_size(self, size: int) -> None:
        """Without effect: the launcher has decided."""

    def global_rank(self) -> int:
        """Rank of this process."""
        return ddl.rank()

    def set_global_rank(self, rank: int) -> None:
        """Without effect: the launcher has decided."""

    def local_rank(self) -> int:
        """Rank of this process among those of its host."""
        return ddl.local_rank()

    def node_rank(self) -> int:
        """Number of this process's host."""
        return ddl.host_index()

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """Lightning deals the data to devices x num_nodes ranks: that must be all of them.

        Raises:
            ValueError: It is not, with what to write instead.
        """
        if num_devices * num_nodes == ddl.size():
            return
        if ddl.size() == ddl.local_size() * ddl.num_hosts():
            remedy = f"give Trainer(devices={ddl.local_size()}, num_nodes={ddl.num_hosts()})"
        else:
            remedy = (
                "start equally many ranks on every host (ddlrun -nproc-per-node): Lightning knows no other"
            )
        raise ValueError(
            f"Trainer(devices={num_devices}, num_nodes={num_nodes}) does not fit the job: {ddl.size()} ranks "
            f"on {ddl.num_hosts()} hosts; {remedy}"
        )
