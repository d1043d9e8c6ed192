"""Runs the real program ddlrun, with a limit on every run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import rank_processes
from ddlrun.start import rank_start

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


def environment_of_rank(
    handed: Mapping[str, str], launched: Mapping[str, str], chosen: Collection[str] = ()
) -> dict[str, str]:
    """What a program sees that rank_start.py begins. launched: what its launcher has begun that with."""
    ended = subprocess.run(
        [sys.executable, "-I", "-S", rank_start.__file__, "/usr/bin/env", "-0"],
        env={**launched, rank_start.VARIABLE: rank_start.encode({"PATH": os.defpath, **handed}, chosen)},
        capture_output=True,
        timeout=20,
        check=True,
    )
    assert ended.stderr == b"", ended.stderr
    seen = dict(os.fsdecode(entry).split("=", 1) for entry in ended.stdout.split(b"\0") if entry)
    seen.pop(rank_start.STATE_VARIABLE, None)
    return seen


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

    def by_script(self, script: str, *words: str) -> Run:
        """A run that a script of bash starts, as "$@"."""
        child = rank_processes.start(
            ["bash", "-c", script, "bash", *self.words, *words], self.environment(), folder=self.folder
        )
        return self.finish(child)

    def log(self) -> str:
        """Logs of all runs of this test."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("DDLRUN.*/*/ddlrun.log")))
