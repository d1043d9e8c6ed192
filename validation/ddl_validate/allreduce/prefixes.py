"""Where the peers are installed: what the user says, the environment of this command, or one beside it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from .errors import BenchError
from .peers import PEERS, Ddl, Gloo, Mpich, OneCcl, OpenMpi, Peer

_TREE = Path(__file__).resolve().parents[3]
_BESIDE = ("powerai", "peers-mpich", "peers-gloo", "peers-ucc", "peers-oneccl")


def candidates() -> list[Path]:
    """Prefixes to look into: this environment, those beside it, and those of the clone around this file."""
    current = Path(sys.prefix)
    environments = [current.parent, _TREE / "build" / "envs"]
    prefixes = [current, *(folder / name for folder in environments for name in _BESIDE)]
    return [prefix for prefix in dict.fromkeys(prefixes) if prefix.is_dir()]


def parse_prefixes(options: list[str]) -> dict[str, Path]:
    """``--prefix PEER=DIR`` as a table; BenchError where it cannot be read."""
    prefixes = {}
    for word in options:
        name, equals, folder = word.partition("=")
        if not equals or name not in PEERS:
            raise BenchError(f"--prefix {word!r}: write PEER=DIR, PEER one of: {', '.join(PEERS)}")
        if not Path(folder).is_dir():
            raise BenchError(f"--prefix {word!r}: no such folder")
        prefixes[name] = Path(folder).resolve()
    return prefixes


def find_peers(
    names: list[str], prefixes: Mapping[str, Path], cache: Path
) -> tuple[list[Peer], dict[str, str]]:
    """The peers that are installed, in this order, and the reason for each that is not."""
    places: dict[str, Path] = {}
    for name, kind in PEERS.items():
        place = prefixes.get(name) or next((p for p in candidates() if kind.found_in(p)), None)
        if place:
            places[name] = place
    peers: list[Peer] = []
    missing: dict[str, str] = {}
    for name in names:
        if name not in PEERS:
            raise BenchError(f"unknown peer {name!r}; one of: {', '.join(PEERS)}")
        kind = PEERS[name]
        if name not in places or not kind.found_in(places[name]):
            where = str(prefixes[name]) if name in prefixes else ", ".join(map(str, candidates()))
            missing[name] = f"not in {where}; install it ({kind.remedy}) and say --prefix {name}=DIR"
            continue
        peer = kind(places[name], cache)
        if isinstance(peer, Gloo):
            peer.started_by = places.get(OpenMpi.name) or places.get(Ddl.name)
        if isinstance(peer, OneCcl):
            peer.compiled_by = places.get(Mpich.name)
        peers.append(peer)
    return peers, missing
