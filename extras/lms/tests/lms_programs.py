"""Programs of Large Model Support in the environment under test; the package comes from the working tree."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rank_processes import ALLOW_ROOT, QUICK, ROOT, finish, own_environment, start

PYTHON = ROOT / "extras/lms"
PROGRAMS = Path(__file__).parent / "programs"


@dataclass
class Ended:
    """How a program ended."""

    status: int
    out: str
    err: str

    def ok(self) -> Ended:
        assert self.status == 0, f"status {self.status}\n{self.out}\n{self.err[-6000:]}"
        return self

    def value(self, name: str) -> str:
        """The rest of the line that begins with `name: `."""
        [found] = [line for line in self.out.splitlines() if line.startswith(f"{name}: ")]
        return found.removeprefix(f"{name}: ")


class Programs:
    """Runs programs by the environment's Python."""

    def __init__(self, prefix: Path, folder: Path) -> None:
        self.prefix, self._folder = prefix, folder

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        path = f"{self.prefix / 'bin'}:{os.environ['PATH']}"
        own = {
            "PATH": path,
            "PYTHONPATH": str(PYTHON),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self._folder),
        }
        own |= {"DDL_OPTIONS": "-timeout 60", "TF_CPP_MIN_LOG_LEVEL": "2"}
        return {**own_environment(), **ALLOW_ROOT, **QUICK, **own, **more}

    def python(self, program: Path, *words: str, limit: float = 180, **more: str) -> Ended:
        return self.run(str(self.prefix / "bin/python"), str(program), *words, limit=limit, **more)

    def run(self, *words: str, limit: float = 180, **more: str) -> Ended:
        child = start(words, self.environment(more))
        out, err = finish(child, limit)
        return Ended(child.returncode, out, err)
