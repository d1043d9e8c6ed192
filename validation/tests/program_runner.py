"""How the tests of the validation programs run things in the environment under test.

The programs run in the environment named by DDL_TEST_PREFIX (default: the one that the quick start makes),
as users run them; pytest itself runs elsewhere. The package comes from the working tree.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked_programs import ForkServer

from ddl_validate.common.mpi import MPI_AS_ROOT

ROOT = Path(__file__).resolve().parents[2]
PYTHONPATH = str(ROOT / "validation")
PROGRAMS = str(ROOT / "validation/programs")
PACKAGE = ROOT / "validation/programs/tf_cnn_benchmarks"


@dataclass(frozen=True)
class Result:
    """Exit code and output of a finished program."""

    rc: int
    out: str
    err: str

    def ok(self) -> Result:
        """The result itself, where the program was to succeed."""
        assert self.rc == 0, f"exit code {self.rc}\n{self.out}\n{self.err}"
        return self

    def error(self) -> str:
        """The one-line message, where the program was to fail without a traceback."""
        assert self.rc != 0, self.out
        assert "Traceback" not in self.err, self.err
        lines = [line for line in self.err.splitlines() if line.startswith("tf_cnn_benchmarks: error: ")]
        assert len(lines) == 1, self.err
        return lines[0].removeprefix("tf_cnn_benchmarks: error: ")


def run_program(command: Sequence[str | Path], timeout: float, **environment: str) -> Result:
    """Runs a program in a session of its own; past `timeout` seconds it is ended and the test fails."""
    child = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        pytest.fail(f"{command} did not end within {timeout} s:\n{out[-2000:]}\n{err[-2000:]}")
    return Result(child.returncode, out, err)


@dataclass(frozen=True)
class Environment:
    """The environment under test."""

    prefix: Path
    forks: ForkServer | None = None
    """Runs evaluate() and benchmark(), for tests that need no new process."""

    def _variables(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(PACKAGE / "src"), os.environ.get("PYTHONPATH", "")]))
        return {
            "PATH": f"{self.prefix / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": path,
            "PYTHONDONTWRITEBYTECODE": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            **MPI_AS_ROOT,
            **(extra or {}),
        }

    def python(self, *arguments: str | Path, timeout: float = 120, **extra: str) -> Result:
        return run_program([self.prefix / "bin" / "python", *arguments], timeout, **self._variables(extra))

    def benchmark(self, *flags: str, timeout: float = 120, **extra: str) -> Result:
        """`python -m tf_cnn_benchmarks` with these flags."""
        if self.forks and not extra:
            return self._forked(flags, timeout, module="tf_cnn_benchmarks")
        return self.python("-m", "tf_cnn_benchmarks", *flags, timeout=timeout, **extra)

    def benchmarks(self, *runs: Sequence[str], timeout: float = 120) -> list[Result]:
        """The same for several runs one after the other in one process, which spares TensorFlow's start."""
        code = """
import contextlib, io, json, sys
from tf_cnn_benchmarks.cli import main
results = []
for flags in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        rc = main(["tf_cnn_benchmarks", *flags])
    results.append([rc, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""
        return [Result(*result) for result in self.evaluate(code, json.dumps(runs), timeout=timeout)]

    def ranks(self, number: int, *arguments: str, timeout: float = 120, **extra: str) -> Result:
        """`python` with these arguments on `number` ranks of this host."""
        launcher = [
            str(self.prefix / "bin" / "mpirun"),
            "-np",
            str(number),
            "--bind-to",
            "none",
            "--oversubscribe",
        ]
        exports = [word for name in ("PYTHONPATH", "TF_CPP_MIN_LOG_LEVEL", *extra) for word in ("-x", name)]
        command = [*launcher, *exports, str(self.prefix / "bin" / "python"), *arguments]
        return run_program(command, timeout, **self._variables(extra))

    def evaluate(self, code: str, *arguments: str | Path, timeout: float = 120) -> Any:
        """Runs `code` there; its last output line is JSON, and the value of this call."""
        if self.forks:
            result = self._forked(arguments, timeout, code=code)
        else:
            result = self.python("-c", code, *arguments, timeout=timeout)
        return json.loads(result.ok().out.splitlines()[-1])

    def _forked(self, arguments: Sequence[str | Path], timeout: float, **what: str) -> Result:
        assert self.forks
        words = [str(argument) for argument in arguments]
        return Result(*self.forks.run(words, {**os.environ, **self._variables()}, timeout, **what))

    def has(self, module: str) -> bool:
        found = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        return self.python("-c", found).rc == 0
