"""The environment with Horovod in which it is tested, and jobs in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from rank_processes import ALLOW_ROOT, QUICK, finish, own_environment, prefix_with, start

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 240.0


@dataclass
class Job:
    """How a job ended."""

    status: int
    out: str
    err: str
    folder: Path

    def passed(self, case: str) -> int:
        """How many ranks say that the case passed; a launcher may put its own words before theirs."""
        return sum(line.endswith(f"passed {case}") for line in self.out.splitlines())


class Jobs:
    """Starts programs of this folder, or texts, as ranks."""

    def __init__(self, prefix: Path, folder: Path) -> None:
        self._bin, self._folder = prefix / "bin", folder

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        own = {"TMPDIR": str(self._folder), "DDL_OPTIONS": "-timeout 60"}
        own |= {"TF_CPP_MIN_LOG_LEVEL": "3", "DDL_AUTO_INIT": "0", "OMPI_MCA_mpi_yield_when_idle": "1"}
        own["PATH"] = f"{self._bin}:{os.environ['PATH']}"
        environment = {**own_environment(), **ALLOW_ROOT, **QUICK, **own, **more}
        return {name: value for name, value in environment.items() if not name.startswith("HOROVOD_")} | {
            name: value for name, value in more.items() if name.startswith("HOROVOD_")
        }

    def _program(self, program: str) -> str:
        if program.endswith(".py"):
            return str(PROGRAMS / program)
        path = self._folder / "program.py"
        path.write_text(program)
        return str(path)

    def mpirun(self, ranks: int, program: str, *arguments: str, **more: str) -> Job:
        words = ["mpirun", "-n", str(ranks), "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "python"]
        return self._run([*words, self._program(program), *arguments], more)

    def ddlrun(self, ranks: int, program: str, *arguments: str, **more: str) -> Job:
        return self._run(["ddlrun", "-np", str(ranks), "python", self._program(program), *arguments], more)

    def horovodrun(self, ranks: int, program: str, *arguments: str, **more: str) -> Job:
        words = ["horovodrun", "-np", str(ranks), "python"]
        return self._run([*words, self._program(program), *arguments], more)

    def alone(self, program: str, *arguments: str, **more: str) -> Job:
        return self._run(["python", self._program(program), *arguments], more)

    def tool(self, words: Sequence[str], **more: str) -> Job:
        return self._run(list(words), more)

    def _run(self, words: list[str], more: dict[str, str]) -> Job:
        words[0] = str(self._bin / words[0])
        child = start(words, self._environment(more), folder=self._folder)
        out, err = finish(child, LIMIT)
        return Job(child.returncode, out, err, self._folder)


@pytest.fixture(scope="session")
def horovod_prefix() -> Path:
    library = "lib/python3*/site-packages/horovod/torch/mpi_lib_v2*.so"
    return prefix_with(library, "horovod", "horovod", "mpi4py", "scikit-learn", "tf-keras")


@pytest.fixture
def jobs(horovod_prefix: Path, tmp_path: Path) -> Jobs:
    return Jobs(horovod_prefix, tmp_path)
