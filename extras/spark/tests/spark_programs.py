"""Programs in the environment with Spark."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rank_processes import ALLOW_ROOT, QUICK, finish, mpirun_words, own_environment, start

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 300.0
# It says how it is used, then waits for the end of its input.
_HOLD = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); sys.stdin.read()"


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


@contextlib.contextmanager
def shared_cluster(prefix: Path, folder: Path, *options: str) -> Iterator[Spark]:
    """A cluster that several programs use, one after the other; options of ddl_spark."""
    made = Spark(prefix, folder)
    words = ["-m", "ddl_spark", "--folder", str(folder / "cluster"), *options]
    words += ["--", made.python, "-c", _HOLD]
    with subprocess.Popen(
        [made.python, *words],
        env=made.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as holder:
        assert holder.stdin and holder.stdout
        line = holder.stdout.readline()
        assert line, "the cluster did not start"
        made.of_cluster = {
            name: value
            for name, value in json.loads(line).items()
            if name.startswith(("SPARK_", "MASTER", "JAVA_HOME", "PYSPARK_"))
        }
        try:
            yield made
        finally:
            holder.stdin.close()
            try:
                holder.wait(30)
            finally:
                holder.kill()
