"""Runs programs that sweep, in the environment under test, and looks at what they leave."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rank_processes import ALLOW_ROOT, QUICK, finish, own_environment, start

PROGRAMS = Path(__file__).parent / "programs"
_WAIT_SECONDS = 180


@dataclass
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The last line of output."""
        assert self.code == 0, self.out + self.err
        return json.loads(self.out.splitlines()[-1])


class Python:
    """The Python of an environment."""

    def __init__(self, prefix: Path, folder: Path) -> None:
        self.prefix, self.folder = prefix, folder

    def environment(self, **more: str) -> dict[str, str]:
        own = {"TMPDIR": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
        return {**own_environment(), **ALLOW_ROOT, **QUICK, **own, **more}

    def start(self, *words: str | Path, **more: str) -> subprocess.Popen[str]:
        line = [str(self.prefix / "bin/python"), *map(str, words)]
        return start(line, self.environment(**more), folder=self.folder)

    def __call__(self, *words: str | Path, limit: float = 300, **more: str) -> Ended:
        child = self.start(*words, **more)
        out, err = finish(child, limit)
        return Ended(child.returncode, out, err)

    def sweep(self, *words: str | Path, **more: str) -> Ended:
        """`python -m ddl_sweep`."""
        return self("-m", "ddl_sweep", *words, **more)


def until(what: Callable[[], Any], limit: float = _WAIT_SECONDS) -> Any:
    """Waits until something is true; what it gave then."""
    end = time.monotonic() + limit
    while not (found := what()):
        assert time.monotonic() < end, "did not become true within the limit"
        time.sleep(0.05)
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def started(folder: Path) -> list[tuple[int, int]]:
    """The trials of gated.py that have begun: number and process of each."""
    file = Path(f"{folder}.started")
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]


def _journal(folder: Path) -> list[dict[str, Any]]:
    """The operations in Optuna's journal."""
    file = folder / "optuna.log"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _number_of(operations: list[dict[str, Any]]) -> dict[int, int]:
    """The number of each trial that Optuna knows."""
    noted = (
        (operation["trial_id"], operation["user_attr"])
        for operation in operations
        if "user_attr" in operation and "trial_id" in operation
    )
    return {identity: attribute["sweep"]["number"] for identity, attribute in noted if "sweep" in attribute}


def results(folder: Path) -> list[int]:
    """Numbers of the trials that have ended."""
    operations = _journal(folder)
    numbers = _number_of(operations)
    return sorted({numbers[operation["trial_id"]] for operation in operations if "state" in operation})


def interrupt(folder: Path, number: int, *, told: bool = True) -> None:
    """Makes the journal that of a sweep which was killed before the trial ended; with told=False only before
    Optuna was told of its end. A crash has left half a line.
    """
    operations = _journal(folder)
    numbers = _number_of(operations)

    def lost(operation: dict[str, Any]) -> bool:
        ends = "state" in operation or (told and "outcome" in operation.get("user_attr", {}))
        return ends and numbers[operation["trial_id"]] == number

    lines = [json.dumps(operation) + "\n" for operation in operations if not lost(operation)]
    (folder / "optuna.log").write_text("".join(lines) + lines[-1][:20])


def plain_loop() -> list[dict[str, Any]]:
    """What grid_by.py must give: the same by three loops."""
    rows = []
    for rate in (0.125, 0.25, 0.5):
        for width in (1, 2):
            for kind in "ab":
                score = width - 100 * (rate - 0.25) ** 2 + (1 if kind == "b" else 0)
                values = {"rate": rate, "width": width, "kind": kind, "score": score, "cost": rate * width}
                rows.append({"trial": len(rows), "status": "done", **values})
    return rows


def assert_like_a_plain_loop(given: dict[str, Any]) -> None:
    expected = plain_loop()
    names = expected[0].keys()
    assert [{name: row[name] for name in names} for row in given["rows"]] == expected
    best = max(expected, key=lambda row: row["score"])
    assert given["best"] == best["trial"]


def kill(child: subprocess.Popen[str]) -> None:
    """SIGKILL to one process alone, and its end."""
    os.kill(child.pid, 9)
    child.wait(timeout=20)
    for pipe in (child.stdout, child.stderr):
        if pipe:
            pipe.close()
