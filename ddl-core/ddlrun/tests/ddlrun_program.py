"""Runs the real program ddlrun, with a limit on every run."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil
import rank_processes

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 90.0


@dataclass
class Run:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Lines of the ranks, in the order of ranks where they begin with theirs."""
        return sorted(self.out.splitlines())


def is_alive(pid: int) -> bool:
    """False also for a process that has ended and waits for its parent."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


class Ddlrun:
    def __init__(self, prefix: Path, root: Path, folder: Path) -> None:
        self.prefix, self.folder = prefix, folder
        installed = prefix / "bin/ddlrun"
        self.variables: dict[str, str] = {}
        if installed.exists():
            self.words = [str(installed)]
        else:
            self.words = [str(prefix / "bin/python3"), str(root / "ddl-core/ddlrun/bin/ddlrun")]
            self.variables["PYTHONPATH"] = os.pathsep.join(
                str(root / "ddl-core" / part) for part in ("python", "ddlrun")
            )

    def environment(self, **more: str) -> dict[str, str]:
        own = {"TMPDIR": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        return rank_processes.own_environment() | own | self.variables | more

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """A run that goes on while the test does something to it."""
        command = [*self.words, *words]
        return rank_processes.start(command, self.environment(**more), folder=self.folder, own_session=False)

    def finish(self, child: subprocess.Popen[str], limit: float = LIMIT) -> Run:
        out, err = rank_processes.finish(child, limit)
        return Run(child.returncode, out, err)

    def __call__(self, *words: str, **more: str) -> Run:
        return self.finish(self.start(*words, **more))

    def log(self) -> str:
        """Logs of all runs of this test."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("DDLRUN.*/*/ddlrun.log")))
