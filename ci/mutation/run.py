"""Tries mutants of Python files: each in its own process, in which the file is imported with its mistake."""

from __future__ import annotations

import importlib
import importlib.abc
import os
import pickle
import random
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, TypeVar

import pytest

from mutation.mutants import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
Item = TypeVar("Item")
_STANDARD_LIBRARY = os.path.dirname(os.__file__)


@dataclass(frozen=True)
class Target:
    """Files that are changed, and the tests that should see it.

    Attributes:
        tests: Files of pytest, or a filter of DDL's C++ tests.
        equivalent: Mutants that change nothing that can be observed, as `file: change`, with the reason.
    """

    name: str
    files: tuple[Path, ...]
    tests: tuple[str, ...]
    equivalent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What the tests of a target did with one mutant."""

    file: Path
    line: int
    description: str
    killed: bool
    seconds: float

    @property
    def key(self) -> str:
        """Names the mutant without its line, as targets.toml does."""
        return key_of(self.file, self.description)


@dataclass(frozen=True)
class Result:
    """The outcomes of a target.

    Attributes:
        unreached: Mutants in lines that no quick test runs: for the slow tests to see.
        equivalent: Mutants of the draw that targets.toml lists as such.
    """

    outcomes: list[Outcome]
    unreached: int = 0
    equivalent: int = 0


@dataclass(frozen=True)
class Trial:
    """A mutant that is to be tried.

    Attributes:
        killed: Runs the tests on it, and says whether one failed; None where it is no program.
    """

    file: Path
    line: int
    description: str
    killed: Callable[[], bool | None]


def try_each(
    target: Target, trials: Iterable[Trial], on_outcome: Callable[[Outcome], None]
) -> tuple[list[Outcome], int]:
    """Runs the trials one after the other.

    Returns:
        Their outcomes, and how many were left out because targets.toml lists them as equivalent.
    """
    outcomes = []
    equivalent = 0
    for trial in trials:
        if key_of(trial.file, trial.description) in target.equivalent:
            equivalent += 1
            continue
        start = time.monotonic()
        killed = trial.killed()
        if killed is None:
            continue
        seconds = time.monotonic() - start
        outcomes.append(Outcome(trial.file, trial.line, trial.description, killed, seconds))
        on_outcome(outcomes[-1])
    return outcomes, equivalent


def _no_tests() -> dict[tuple[str, int], set[str]]:
    return defaultdict(set)


@dataclass
class Reach:
    """The lines that the tests run, and what they import.

    Attributes:
        tests: By file and line: the tests that run it; "" is the import.
        seconds: By test.
        modules: Packages that are none of this project's.
    """

    tests: dict[tuple[str, int], set[str]] = field(default_factory=_no_tests)
    seconds: dict[str, float] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)


def key_of(file: Path, description: str) -> str:
    path = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
    return f"{path}: {description}"


def draw(items: Sequence[Item], sample: int | None, seed: int) -> list[Item]:
    """Returns `sample` items in their order; all of them where there are no more, or with None."""
    if sample is None or sample >= len(items):
        return list(items)
    return [items[place] for place in sorted(random.Random(seed).sample(range(len(items)), sample))]


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


class _Tracer:
    """Pytest's plugin that notes which test runs which lines of some files."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = {str(file) for file in files}
        self._test = ""
        self.reach = Reach()

    def start(self) -> None:
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        self._note(frame, "line", None)
        return self._note

    def _note(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self.reach.tests[frame.f_code.co_filename, frame.f_lineno].add(self._test)
        return self._note

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._test = item.nodeid
        start = time.monotonic()
        try:
            return (yield)
        finally:
            self.reach.seconds[item.nodeid] = time.monotonic() - start
            self._test = ""


class _Order:
    """Pytest's plugin that runs the tests first that reach a mistake, the fastest of them first."""

    def __init__(self, reach: Reach, tests: set[str]) -> None:
        self._reach = reach
        self._tests = tests

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(
            key=lambda item: (item.nodeid not in self._tests, self._reach.seconds.get(item.nodeid, 0.0))
        )


def try_target(
    target: Target,
    *,
    sample: int | None,
    seed: int,
    on_outcome: Callable[[Outcome], None],
) -> Result:
    """Runs the tests of a target once as it is, then once for each mutant in a line that they reach.

    Args:
        sample: How many mutants to draw; None: all.
        seed: Of the draw.

    Raises:
        RuntimeError: The tests fail without any mistake, or a file is imported already, so that its mutants
            would change nothing.
    """
    files = {str(file) for file in target.files}
    if imported := files & {getattr(module, "__file__", None) for module in list(sys.modules.values())}:
        raise RuntimeError(f"{target.name}: {min(map(str, imported))} is imported already")
    start = time.monotonic()
    reach = _reach(target)
    # a mutant that loops for ever is killed by the limit, as a test would be by its own
    limit_s = 20.0 + 5 * (time.monotonic() - start)
    for name in reach.modules:
        try:
            importlib.import_module(name)  # once, rather than by each copy of this process
        except Exception:  # some can only be imported by another one
            pass
    mutants_of = [(file, mutant) for file in target.files for mutant in mutants(file.read_text())]
    reached = [
        (file, mutant, tests)
        for file, mutant in mutants_of
        if (
            tests := set().union(
                *(reach.tests.get((str(file), line), ()) for line in range(mutant.line, mutant.end + 1))
            )
        )
    ]

    def killed(file: Path, mutant: Mutant, tests: set[str]) -> bool:
        finder = _Mistaken(file, compile(mutant.tree, str(file), "exec"))
        return _run(target, finder, _Order(reach, tests), limit_s)

    trials = [
        Trial(file, mutant.line, mutant.description, partial(killed, file, mutant, tests))
        for file, mutant, tests in reached
    ]
    outcomes, equivalent = try_each(target, draw(trials, sample, seed), on_outcome)
    return Result(outcomes, len(mutants_of) - len(reached), equivalent)


def _arguments(target: Target) -> list[str]:
    return ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not long", *target.tests]


def _quiet() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _reach(target: Target) -> Reach:
    """Runs the tests in a copy of this process, and returns what they reach there."""
    with tempfile.NamedTemporaryFile(prefix="mutate-") as notes:
        child = os.fork()
        if child == 0:
            # nothing of what is changed may be imported yet: a copy begins where its parent is
            before = set(sys.modules)
            _quiet()
            tracer = _Tracer(target.files)
            tracer.start()
            code = int(pytest.main(_arguments(target), plugins=[tracer]))
            sys.settrace(None)
            packages = {
                name.partition(".")[0]
                for name, module in list(sys.modules.items())
                if name not in before and not name.startswith("_")
                if (origin := getattr(getattr(module, "__spec__", None), "origin", None))
                and ("/site-packages/" in origin or origin.startswith(_STANDARD_LIBRARY))
            }
            tracer.reach.modules = sorted(packages)
            Path(notes.name).write_bytes(pickle.dumps((code, tracer.reach)))
            os._exit(0)
        os.waitpid(child, 0)
        failed: int
        reach: Reach
        failed, reach = pickle.loads(Path(notes.name).read_bytes())
    if failed:
        raise RuntimeError(f"{target.name}: the tests fail as the code is; mend them first")
    return reach


def _run(target: Target, finder: _Mistaken, order: _Order, limit_s: float) -> bool:
    """Runs the tests in a copy of this process; returns whether one fails."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        _quiet()
        sys.meta_path.insert(0, finder)
        os._exit(int(pytest.main(_arguments(target), plugins=[order])))
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
