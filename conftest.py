"""Which tests ci/test --quick leaves out: docs/testing.md, "Mark a test"."""

from __future__ import annotations

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before -m selects by marks."""
    for item in items:
        if STARTING.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
