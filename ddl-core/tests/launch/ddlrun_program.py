"""Runs the real program ddlrun, with a limit on every run."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 90.0
# A test that is itself started by MPI or a scheduler must not hand that on.
_FOREIGN = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "SLURM_", "LSB_", "DDL_", "DDLRUN_")


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


class Ddlrun:
    def __init__(self, prefix: Path, root: Path, folder: Path) -> None:
        self.prefix, self.folder = prefix, folder
        installed = prefix / "bin/ddlrun"
        self.variables: dict[str, str] = {}
        if installed.exists():
            self.words = [str(installed)]
        else:
            self.words = [str(prefix / "bin/python3"), str(root / "ddl-core/python/bin/ddlrun")]
            self.variables["PYTHONPATH"] = str(root / "ddl-core/python")

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        kept |= {"TMPDIR": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        return kept | self.variables | more

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """A run that goes on while the test does something to it."""
        return subprocess.Popen(
            [*self.words, *words],
            env=self.environment(**more),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def finish(self, child: subprocess.Popen[str], limit: float = LIMIT) -> Run:
        try:
            out, err = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGTERM)
            try:
                out, err = child.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                child.kill()
                out, err = child.communicate()
            raise AssertionError(f"ddlrun did not end within {limit:g} s\n{out}\n{err}") from None
        return Run(child.returncode, out, err)

    def __call__(self, *words: str, **more: str) -> Run:
        return self.finish(self.start(*words, **more))

    def log(self) -> str:
        """Logs of all runs of this test."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("DDLRUN/*/ddlrun.log")))
