"""The peers: DDL and what it is compared with."""

from .base import MEMORIES as MEMORIES
from .base import Launch as Launch
from .base import Peer as Peer
from .base import Setting as Setting
from .base import open_testbed as open_testbed
from .ddl import Ddl as Ddl
from .gloo import Gloo as Gloo
from .mpich import Mpich as Mpich
from .nccl import Nccl as Nccl
from .oneccl import OneCcl as OneCcl
from .openmpi import OpenMpi as OpenMpi
from .ucc import Ucc as Ucc

PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Ddl, OpenMpi, Mpich, Gloo, Ucc, OneCcl, Nccl)}
