"""Hosts that can be held against each other: of one processor, GPU and size of memory."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

#: Fewer hosts than this are no kind of their own where there are others of the same processor and GPUs.
FEWEST = 3
_STEPS = (1.0, 1.5)
_GIB = 1 << 30


def kind_of(facts: Mapping[str, Any]) -> str:
    """A host's kind in words: the same for hosts that differ by a memory module or a GPU that is missing."""
    gpus = sorted(
        {
            str(gpu.get("name", gpu)) if isinstance(gpu, Mapping) else str(gpu)
            for gpu in facts.get("gpus") or ()
        }
    )
    parts = [str(facts.get("cpu") or facts.get("machine") or "unknown processor")]
    if size := _size_of_memory(facts):
        parts.append(f"{size:g} GiB of memory")
    return ", ".join([*parts, *gpus])


def kinds_of(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Returns the kind of each host, by name.

    One or two hosts that differ from others of their processor and GPUs by their memory alone are of the
    others' kind: nearest in size, larger ones first.
    """
    kinds = {name: kind_of(of_host) for name, of_host in facts.items()}
    members: dict[str, list[str]] = defaultdict(list)
    for name, kind in kinds.items():
        members[kind].append(name)
    for kind, names in list(members.items()):
        size = _size_of_memory(facts[names[0]])
        like = [
            (abs(math.log(other_size / size)), -other_size, other)
            for other, others in members.items()
            if other != kind and size and len(others) > len(names) and len(names) < FEWEST
            for other_size in [_size_of_memory(facts[others[0]])]
            if other_size and _without_memory(facts[others[0]]) == _without_memory(facts[names[0]])
        ]
        if like:
            kinds |= dict.fromkeys(names, min(like)[2])
    return kinds


def by_kind(names: Iterable[str], kinds: Mapping[str, str]) -> list[list[str]]:
    """The hosts of each kind, in their order; those whose kind is not known together."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[kinds.get(name, "")].append(name)
    return list(groups.values())


def _without_memory(facts: Mapping[str, Any]) -> str:
    return kind_of({name: value for name, value in facts.items() if name != "memory_bytes"})


def _size_of_memory(facts: Mapping[str, Any]) -> float:
    """In GiB, of the sizes 1, 1.5, 2, 3, 4, 6, 8 … the nearest; 0 where it is not known."""
    size = (facts.get("memory_bytes") or 0) / _GIB
    if size <= 0:
        return 0.0
    begin = 2.0 ** math.floor(math.log2(size))
    nearest = [begin * step for step in _STEPS] + [2 * begin]
    return min(nearest, key=lambda candidate: abs(math.log(candidate / size)))
