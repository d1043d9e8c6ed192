"""The peers: DDL and what it is compared with."""

from .base import MEMORIES, Launch, Peer, Setting
from .ddl import Ddl
from .gloo import Gloo
from .mpich import Mpich
from .nccl import Nccl
from .oneccl import OneCcl
from .openmpi import OpenMpi
from .ucc import Ucc

PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Ddl, OpenMpi, Mpich, Gloo, Ucc, OneCcl, Nccl)}

__all__ = [
    "MEMORIES",
    "PEERS",
    "Ddl",
    "Gloo",
    "Launch",
    "Mpich",
    "Nccl",
    "OneCcl",
    "OpenMpi",
    "Peer",
    "Setting",
    "Ucc",
]
