"""Which tests ci/test --quick leaves out (docs/develop/testing.md), and where its time goes."""

from __future__ import annotations

import os
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, settings

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

# As in a user's shell. ci/bootstrap.sh sets it for the progress of our own tools; in a rank it turns one
# print into several writes, and other ranks' come between them.
os.environ.pop("PYTHONUNBUFFERED", None)

# No property depends on how fast the machine is, or how busy.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def _parametrized(item: pytest.Item) -> set[str]:
    """Names that are arguments of parametrize, not fixtures."""
    names: set[str] = set()
    for mark in item.iter_markers("parametrize"):
        given = mark.args[0]
        names.update(name.strip() for name in (given.split(",") if isinstance(given, str) else given))
    return names


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before -m selects by marks."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ())) - _parametrized(item)
        if STARTING & fixtures:
            item.add_marker(pytest.mark.slow)
        if DAEMONS & fixtures:
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
