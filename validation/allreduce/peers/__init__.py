"""The peers: DDL and what it is compared with."""

from .base import Launch, Peer, Setting
from .ddl import Ddl
from .gloo import Gloo
from .mpich import Mpich
from .oneccl import OneCcl
from .openmpi import OpenMpi
from .ucc import Ucc

PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Ddl, OpenMpi, Mpich, Gloo, Ucc, OneCcl)}

__all__ = ["PEERS", "Ddl", "Gloo", "Launch", "Mpich", "OneCcl", "OpenMpi", "Peer", "Setting", "Ucc"]
