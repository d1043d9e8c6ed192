"""Tries mutants: each in a process of its own, in which the file is imported with its mistake."""

from __future__ import annotations

import importlib.abc
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from mutation.mutants import Mutant, mutants


@dataclass(frozen=True)
class Target:
    """Files that are changed, and the tests that should see it."""

    name: str
    files: tuple[Path, ...]
    tests: tuple[Path, ...]


@dataclass(frozen=True)
class Outcome:
    """What the tests of a target did with one mutant."""

    file: Path
    mutant: Mutant
    killed: bool
    seconds: float


class _Mistaken(importlib.abc.MetaPathFinder):
    """Imports one file with other code; everything else as usual."""

    def __init__(self, file: Path, code: CodeType) -> None:
        self._file = os.path.realpath(file)
        self._code = code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None or os.path.realpath(spec.origin) != self._file:
            return None
        code = self._code

        class Loader(SourceFileLoader):
            def get_code(self, fullname: str) -> CodeType:
                return code

        spec.loader = Loader(fullname, spec.origin)
        return spec


def try_target(
    target: Target,
    *,
    sample: int | None,
    seed: int,
    on_outcome: Callable[[Outcome], None],
) -> list[Outcome]:
    """Runs the tests of a target once as it is, then once for each mutant.

    Args:
        sample: How many mutants to draw; None: all.
        seed: Of the draw.

    Raises:
        RuntimeError: The tests fail without any mistake.
    """
    start = time.monotonic()
    if _run(target, None, limit_s=600.0):
        raise RuntimeError(f"{target.name}: the tests fail as the code is; mend them first")
    # a mutant that loops for ever is killed by the limit, as a test would be by its own
    limit_s = 20.0 + 5 * (time.monotonic() - start)
    chosen = [(file, mutant) for file in target.files for mutant in mutants(file.read_text())]
    if sample is not None and sample < len(chosen):
        chosen = sorted(random.Random(seed).sample(chosen, sample), key=lambda pair: (pair[0], pair[1].line))
    outcomes = []
    for file, mutant in chosen:
        start = time.monotonic()
        killed = _run(target, _Mistaken(file, compile(mutant.tree, str(file), "exec")), limit_s)
        outcomes.append(Outcome(file, mutant, killed, time.monotonic() - start))
        on_outcome(outcomes[-1])
    return outcomes


def _run(target: Target, finder: _Mistaken | None, limit_s: float) -> bool:
    """Runs the tests in a copy of this process; returns whether one fails."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        # nothing of what is changed may be imported yet: a copy begins where its parent is
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        if finder is not None:
            sys.meta_path.insert(0, finder)
        arguments = [
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-m",
            "not slow and not long",
            *map(str, target.tests),
        ]
        os._exit(int(pytest.main(arguments)))
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _end(child)
            return os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.01)
    _end(child)
    os.waitpid(child, 0)
    return True


def _end(group: int) -> None:
    """Ends what the tests have left."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
