"""Runs whole scripts, by the programs of the environment under test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from rank_processes import ALLOW_ROOT, PREFIX, QUICK, finish, own_environment, start

#: Seconds; several times what the slowest script takes on two cores.
LIMIT = 240


class Scripts:
    """Starts scripts."""

    python = PREFIX / "bin" / "python"

    def __init__(self, folder: Path, **environment: str) -> None:
        """Takes the folder in which the scripts run, and variables for all of them."""
        if not self.python.exists():
            pytest.fail(f"no environment to test in {PREFIX}: run ci/quickstart, or set DDL_TEST_PREFIX")
        self.folder, self.environment = folder, environment

    def __call__(
        self,
        *arguments: str | Path,
        launcher: Sequence[str | Path] = (),
        fails: bool = False,
        **environment: str,
    ) -> str:
        """Runs Python, or what a launcher starts.

        Args:
            arguments: Python's.
            launcher: Words before Python.
            fails: It must fail.
            environment: More variables. OUT is this folder.

        Returns:
            All that it has printed.
        """
        variables = {"TF_CPP_MIN_LOG_LEVEL": "3", "DDL_OPTIONS": "-timeout 60"}
        variables |= {"OUT": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        variables |= {**self.environment, **environment}
        env = {**own_environment(), **ALLOW_ROOT, **QUICK, **variables}
        command = [str(word) for word in (*launcher, self.python, *arguments)]
        child = start(command, env, folder=self.folder, one_stream=True)
        output, _ = finish(child, LIMIT)
        assert (child.returncode != 0) == fails, f"exit status {child.returncode}:\n{output}"
        return output
