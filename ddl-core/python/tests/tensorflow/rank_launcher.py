"""Starts the test programs as MPI ranks, by the real mpirun."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from rank_processes import ALLOW_ROOT, PREFIX, finish, own_environment, start

PROGRAMS = Path(__file__).parent / "programs"
PYTHON = PREFIX / "bin" / "python"
#: Seconds; several times what the slowest program takes on two cores.
LIMIT = 240


@dataclass
class Run:
    """What a program did: its exit status, what it printed, and the folder for its results."""

    status: int
    output: str
    folder: Path

    def outcome(self, case: str, ranks: int) -> None:
        """Fails the test with the ranks' own reports unless `case` succeeded on all of them."""
        for rank in range(ranks):
            report = self.folder / f"rank{rank}.json"
            assert report.exists(), f"rank {rank} ended early, status {self.status}:\n{self.output}"
            cases = json.loads(report.read_text())
            assert case in cases, f"rank {rank} did not reach {case}:\n{self.output}"
            assert cases[case] == "passed", f"{case} on rank {rank}:\n{cases[case]}"


class Launcher:
    """Runs programs of this folder."""

    def __init__(self, make_folder: pytest.TempPathFactory) -> None:
        if not PYTHON.exists():
            pytest.fail(f"no environment to test in {PREFIX}: run ci/quickstart, or set DDL_TEST_PREFIX")
        self._make_folder = make_folder

    def ranks(self, number: int, program: str, *arguments: str, **environment: str) -> Run:
        """Runs `number` ranks of a program under mpirun; its folder replaces the argument "OUT"."""
        mpirun = str(PREFIX / "bin" / "mpirun")
        command = [mpirun, "-np", str(number), "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
        return self._run(command, program, arguments, environment)

    def alone(self, program: str, *arguments: str, **environment: str) -> Run:
        """Runs a program without a launcher."""
        return self._run([], program, arguments, environment)

    def _run(
        self, launcher: list[str], program: str, arguments: tuple[str, ...], environment: dict[str, str]
    ) -> Run:
        folder = self._make_folder.mktemp(program)
        words = [str(folder) if word == "OUT" else word for word in arguments]
        env = {
            **own_environment(),
            **ALLOW_ROOT,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "DDL_OPTIONS": "-timeout 60",
            **environment,
        }
        command = [*launcher, str(PYTHON), str(PROGRAMS / f"{program}.py"), *words]
        child = start(command, env, one_stream=True)
        output, _ = finish(child, LIMIT)
        return Run(child.returncode, output, folder)


def case_names(program: str) -> list[str]:
    """The cases of a program that goes by `_cases.run`, in their order."""
    tree = ast.parse((PROGRAMS / f"{program}.py").read_text())
    call = tree.body[-1].value  # type: ignore[attr-defined]
    return [name.id for name in call.args[0].elts]
