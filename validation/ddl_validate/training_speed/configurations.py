"""Who is compared: a program, how it shares gradients, and the environment it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Program = Literal["tensorflow", "pytorch"]
# Elements of a group of gradients where the exchange is to overlap with the backward pass: 32 MiB of float32.
# AlexNet's 61 million make three groups of it, as its largest gradient has 38 million.
GROUP_SIZE = 8 * 1024 * 1024
# Those that exist in PyTorch too (networks.py).
TORCH_MODELS = ("alexnet", "vgg11", "vgg16")


@dataclass(frozen=True)
class Configuration:
    """One way to train.

    sharing: --variable_update of tf_cnn_benchmarks, or the backend of torch.distributed; "independent"
    processes exchange nothing. without_ddl: it comes from the environment that holds horovod-mpi. variables:
    of its environment. overlaps: its exchange can go on beside the backward pass. by_horovodrun: started as
    Horovod's users do, with what it sets; ranks of this machine only. All others are started by ddlrun.
    """

    name: str
    title: str
    program: Program
    sharing: str
    without_ddl: bool = False
    overlaps: bool = False
    by_horovodrun: bool = False
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def independent(self) -> bool:
        """Whether it exchanges nothing, so that no other can be faster than it."""
        return self.sharing == "independent"

    @property
    def measures_communication_efficiency(self) -> bool:
        """Whether its program can time steps with and without the exchange in turns."""
        return self.program == "tensorflow" and not self.independent

    def trains(self, model: str) -> bool:
        return self.program == "tensorflow" or model in TORCH_MODELS


ALL = (
    Configuration("independent", "no communication", "tensorflow", "independent"),
    Configuration("ddl", "DDL", "tensorflow", "ddl"),
    Configuration(
        "ddl-groups",
        "DDL in groups",
        "tensorflow",
        "ddl",
        overlaps=True,
        variables={"DDL_GROUP_SIZE": str(GROUP_SIZE)},
    ),
    Configuration("horovod", "Horovod with DDL", "tensorflow", "horovod", overlaps=True),
    Configuration(
        "horovod-mpi", "Horovod with MPI", "tensorflow", "horovod", without_ddl=True, overlaps=True
    ),
    Configuration(
        "horovodrun-mpi",
        "Horovod with MPI, by horovodrun",
        "tensorflow",
        "horovod",
        without_ddl=True,
        overlaps=True,
        by_horovodrun=True,
    ),
    Configuration("torch-independent", "PyTorch, no communication", "pytorch", "independent"),
    Configuration("torch-ddl", "PyTorch DDP, DDL", "pytorch", "ddl", overlaps=True),
    Configuration("torch-gloo", "PyTorch DDP, Gloo", "pytorch", "gloo", overlaps=True),
)
NAMES = tuple(configuration.name for configuration in ALL)


def named(name: str) -> Configuration:
    """The configuration of this name; KeyError where there is none."""
    return next(configuration for configuration in ALL if configuration.name == name)


def baseline_of(configuration: Configuration) -> str:
    """The name of the configuration that computes the same and exchanges nothing."""
    return "independent" if configuration.program == "tensorflow" else "torch-independent"
