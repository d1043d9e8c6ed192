"""Timing on memory of GPUs: one program in Python for every peer, with the library opened by ctypes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from ...common.own_package import module_command, module_variables
from ...gpu.facts import Facts, of_prefix
from ..errors import PeerMissing
from ..testbed import Testbed
from .base import Launch
from .openmpi import launcher

_read_once = functools.cache(of_prefix)


def facts_of(prefix: Path) -> Facts:
    """What the driver says in an environment, read once. PeerMissing where there is no GPU."""
    facts = _read_once(prefix)
    if not facts.gpus:
        raise PeerMissing(facts.problem)
    return facts


def timing(
    prefix: Path, testbed: Testbed, peer: str, options: dict[str, str], arguments: Sequence[str]
) -> Launch:
    """The timing loop of gpu/timing.py on all ranks."""
    program = module_command(prefix, "gpu.timing", peer, *arguments)
    return launcher(prefix, testbed, {**module_variables(), **options}, program)
