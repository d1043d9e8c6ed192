"""The environment with PyTorch in which the backend is tested, and jobs in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from rank_processes import ALLOW_ROOT, QUICK, exits_together, finish, own_environment, prefix_with, start

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 240.0


@dataclass
class Job:
    """How a job ended."""

    status: int
    out: str
    err: str

    def passed(self, case: str) -> int:
        """How many ranks say that the case passed."""
        return self.out.splitlines().count(f"passed {case}")


class Jobs:
    """Starts programs of this folder, or texts, as ranks."""

    def __init__(self, prefix: Path, folder: Path) -> None:
        self._bin, self._folder = prefix / "bin", folder

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        own = {"TMPDIR": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1", "DDL_OPTIONS": "-timeout 60"}
        own["PATH"] = f"{self._bin}:{os.environ['PATH']}"
        return {**own_environment(), **ALLOW_ROOT, **QUICK, **own, **more}

    def _program(self, program: str) -> str:
        if program.endswith(".py"):
            return str(PROGRAMS / program)
        path = self._folder / "program.py"
        path.write_text(program)
        return str(path)

    def mpirun(
        self, ranks: int, program: str, *arguments: str, exit_together: bool = False, **more: str
    ) -> Job:
        words = ["mpirun", "-n", str(ranks), "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
        words += exits_together(self._bin / "python") if exit_together else []
        return self._run([*words, "python", self._program(program), *arguments], more)

    def torchrun(self, ranks: int, program: str, *arguments: str, **more: str) -> Job:
        words = ["python", "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        words += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
        return self._run([*words, self._program(program), *arguments], more)

    def ddlrun(self, ranks: int, program: str, *arguments: str, **more: str) -> Job:
        return self._run(["ddlrun", "-np", str(ranks), "python", self._program(program), *arguments], more)

    def alone(self, program: str, *arguments: str, **more: str) -> Job:
        return self._run(["python", self._program(program), *arguments], more)

    def _run(self, words: list[str], more: dict[str, str]) -> Job:
        words[0] = str(self._bin / words[0])
        child = start(words, self._environment(more))
        out, err = finish(child, LIMIT)
        return Job(child.returncode, out, err)


@pytest.fixture(scope="session")
def torch_prefix() -> Path:
    backend = "lib/python3*/site-packages/ddl/torch/_backend*.so"
    return prefix_with(backend, "ddl-pytorch", "ddl-pytorch")


@pytest.fixture
def jobs(torch_prefix: Path, tmp_path: Path) -> Jobs:
    return Jobs(torch_prefix, tmp_path)
