"""Programs that use Keras 3 on one of its backends, as ranks."""

from __future__ import annotations

import os
from pathlib import Path

from rank_processes import ALLOW_ROOT, PREFIX, QUICK, finish, mpirun_words, own_environment, start

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 240.0


class KerasRanks:
    """Starts programs of programs/ under mpirun."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(
        self, ranks: int, backend: str, program: str, *arguments: str, **more: str
    ) -> tuple[int, str]:
        """Runs a program as ranks, or alone where `ranks` is 0; returns its status and output."""
        words = [
            *(mpirun_words(PREFIX, ranks) if ranks else []),
            str(PREFIX / "bin/python"),
            str(PROGRAMS / program),
            *arguments,
        ]
        environment = {
            **own_environment(),
            **ALLOW_ROOT,
            **QUICK,
            "KERAS_BACKEND": backend,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "DDL_OPTIONS": "-timeout 60",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": f"{PREFIX / 'bin'}:{os.environ['PATH']}",
            **more,
        }
        child = start(words, environment, folder=self._folder, one_stream=True)
        output, _ = finish(child, LIMIT)
        return child.returncode, output
