"""The peers: DDL and what it is compared with."""

from .base import Launch, Peer, Setting
from .ddl import Ddl
from .gloo import Gloo
from .mpich import Mpich
from .openmpi import OpenMpi

PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Ddl, OpenMpi, Mpich, Gloo)}

__all__ = ["PEERS", "Ddl", "Gloo", "Launch", "Mpich", "OpenMpi", "Peer", "Setting"]
