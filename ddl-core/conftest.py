"""Runs programs as real ranks, by the mpirun of the environment under test."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from rank_processes import ALLOW_ROOT, PREFIX, QUICK, exits_together, finish, own_environment, start


@dataclass
class Run:
    """What a job did."""

    status: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def output(self) -> str:
        """Everything it printed."""
        return self.stdout + self.stderr

    def lines(self, start: str) -> list[str]:
        """The rest of every line of standard output that starts with `start`, sorted."""
        return sorted(line[len(start) :] for line in self.stdout.splitlines() if line.startswith(start))


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    return {**own_environment(), **ALLOW_ROOT, **QUICK, **extra}


class MpiRun:
    """Starts programs under mpirun, or alone."""

    def __init__(self, python: Path, mpirun: Path) -> None:
        self.python = python
        self.mpirun = mpirun

    def __call__(
        self,
        ranks: int,
        program: Path | str,
        *arguments: str,
        hosts: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        within: Sequence[str] = (),
        exit_together: bool = False,
    ) -> Run:
        """Runs `ranks` ranks of a Python program.

        Args:
            ranks: Their number.
            program: A file, or the program's text.
            arguments: Of the program.
            hosts: Sizes of emulated hosts, for example "3,2".
            env: More environment variables.
            timeout: Seconds after which the job is killed and the test fails.
            within: A command that runs the command it is given, for example unshare.
            exit_together: Let the launcher kill nobody while another rank runs.
        """
        extra = {**(env or {}), **({"DDL_EMULATE_HOSTS": hosts} if hosts else {})}
        command = [*within, str(self.mpirun), "-np", str(ranks), "--map-by", ":OVERSUBSCRIBE"]
        command += ["--bind-to", "none", *(exits_together(self.python) if exit_together else ())]
        command += [*self._python(program), *arguments]
        return self._run(command, extra, timeout)

    def alone(
        self, program: Path | str, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 60
    ) -> Run:
        """Runs a Python program without a launcher."""
        return self._run([*self._python(program), *arguments], env or {}, timeout)

    def _python(self, program: Path | str) -> list[str]:
        return [str(self.python), *([str(program)] if isinstance(program, Path) else ["-c", program])]

    def _run(self, command: Sequence[str], env: Mapping[str, str], timeout: float) -> Run:
        start_time = time.monotonic()
        process = start(command, _environment(env))
        out, err = finish(process, timeout)
        return Run(process.returncode, out, err, time.monotonic() - start_time)


@pytest.fixture(scope="session")
def mpirun() -> MpiRun:
    """Starts programs as ranks of the environment under test.

    That is DDL_TEST_PREFIX, by default build/envs/powerai; its Python and mpirun can be replaced by
    DDL_TEST_PYTHON and DDL_TEST_MPIRUN.
    """
    python = Path(os.environ.get("DDL_TEST_PYTHON") or PREFIX / "bin/python")
    mpirun = Path(os.environ.get("DDL_TEST_MPIRUN") or PREFIX / "bin/mpirun")
    for program in (python, mpirun):
        if not os.access(program, os.X_OK):
            pytest.fail(
                f"no environment to test: {program} is missing; run ci/quickstart, or set DDL_TEST_PREFIX"
            )
    probe = subprocess.run(
        [str(python), "-c", "import ddl"], env=_environment({}), capture_output=True, text=True, timeout=60
    )
    if probe.returncode != 0:
        pytest.fail(f"{python} cannot import ddl, which is to be tested:\n{probe.stderr}")
    return MpiRun(python, mpirun)
