"""Programs in the environment with Spark."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from rank_processes import ALLOW_ROOT, QUICK, finish, mpirun_words, own_environment, start

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 300.0


@dataclass
class Job:
    """How a program ended."""

    status: int
    out: str
    err: str

    def value(self, name: str) -> str:
        """What follows `NAME: ` on the line that begins so."""
        found = [line.partition(": ")[2] for line in self.out.splitlines() if line.startswith(f"{name}: ")]
        assert len(found) == 1, f"{name} is {found} in\n{self.out}\n{self.err}"
        return found[0]


@dataclass
class Spark:
    """Starts programs in the environment with Spark."""

    prefix: Path
    folder: Path
    of_cluster: dict[str, str] = field(default_factory=dict)

    @property
    def python(self) -> str:
        return str(self.prefix / "bin/python")

    def environment(self, **more: str) -> dict[str, str]:
        own = {name: value for name, value in own_environment().items() if not name.startswith("SPARK_")}
        own |= {"PATH": f"{self.prefix / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(self.folder)}
        own |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"}
        for name in ("JAVA_HOME", "PYSPARK_PYTHON", "MASTER"):
            own.pop(name, None)
        return {**own, **ALLOW_ROOT, **QUICK, **self.of_cluster, **more}

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        return start([self.python, *words], self.environment(**more), folder=self.folder)

    def run(self, *words: str, limit: float = LIMIT, **more: str) -> Job:
        child = self.start(*words, **more)
        out, err = finish(child, limit)
        return Job(child.returncode, out, err)

    def ranks(self, count: int, *words: str, **more: str) -> Job:
        command = [*mpirun_words(self.prefix, count), self.python, *words]
        child = start(command, self.environment(**more), folder=self.folder)
        out, err = finish(child, LIMIT)
        return Job(child.returncode, out, err)
