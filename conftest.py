"""Which tests ci/test --quick and --limit leave out (docs/develop/testing.md), and where its time goes."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict

import pytest

STARTING = frozenset(
    {
        *("clone", "machine", "site", "singularity", "user_and_module"),  # builds, installations, images
        *("able", "hosts", "pair", "slurm"),  # emulated hosts with their daemons
        *("ddlrun", "jobs", "launcher", "mpirun", "prefix", "ranks"),  # ranks of the environment under test
        *("env", "horovod_prefix", "torch_prefix"),  # programs of it, which load frameworks
    }
)
"""A test that uses one of these fixtures starts ranks, builds or daemons: it is marked slow."""

DAEMONS = frozenset({"able", "hosts", "pair", "slurm"})
"""Daemons (sshd, Slurm's) are late now and then on a busy machine: a test that uses one of these fixtures is
run once more when it fails, and shown and counted as RERUN. No other test is."""

_LONG_RUN_S = 120.0
_FILES_SHOWN = 30
_MANY_TESTS = 10

_STARTED = time.monotonic()

# As in a user's shell. ci/bootstrap.sh sets it for the progress of our own tools; in a rank it turns one
# print into several writes, and other ranks' come between them.
os.environ.pop("PYTHONUNBUFFERED", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--begin-within",
        type=float,
        metavar="SECONDS",
        help="skip the tests that would begin later than this after the start",
    )
    parser.addoption(
        "--first-file",
        type=int,
        metavar="NUMBER",
        help="of the files with few tests, begin with this one, counted round and round",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the test's fixtures, which may take longest."""
    within = item.config.getoption("--begin-within")
    if within is not None and time.monotonic() - _STARTED > within:
        pytest.skip("not begun: the time was over (--limit of ci/test)")


def _parametrized(item: pytest.Item) -> set[str]:
    """Names that are arguments of parametrize, not fixtures."""
    names: set[str] = set()
    for mark in item.iter_markers("parametrize"):
        given = mark.args[0]
        names.update(name.strip() for name in (given.split(",") if isinstance(given, str) else given))
    return names


def _rotate(items: list[pytest.Item], number: int) -> None:
    """Files with many tests come first: theirs are short. What the time does not suffice for are files with
    few tests, and with each number other ones.
    """
    tests = Counter(item.path for item in items)
    few = [path for path, count in tests.items() if count < _MANY_TESTS]
    order = {path: (place - number) % len(few) for place, path in enumerate(few)}
    items.sort(key=lambda item: order.get(item.path, -1))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before -m selects by marks."""
    first = config.getoption("--first-file")
    if first is not None:
        _rotate(items, first)
    for item in items:
        if STARTING.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        if DAEMONS.intersection(getattr(item, "fixturenames", ())).difference(_parametrized(item)):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """After a long run, the files that took the most time: where to look when it takes too long."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if sum(seconds.values()) < _LONG_RUN_S:
        return
    slowest = sorted(seconds, key=lambda name: -seconds[name])
    terminalreporter.section("time by file", sep="=")
    for name in slowest[:_FILES_SHOWN]:
        terminalreporter.line(f"{seconds[name]:7.0f} s  {name}")
    others = slowest[_FILES_SHOWN:]
    terminalreporter.line(f"{sum(seconds[name] for name in others):7.0f} s  in {len(others)} other files")
