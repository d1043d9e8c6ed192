"""The folder of a sweep: what is swept, and what each trial gave. It is the sweep's only state.

    sweep.json                   what is swept
    objective.json               the function or program, for trials that no driver starts
    optuna.log                   Optuna's journal
    trials/00007/trial.json      written when the trial starts: its parameters
    trials/00007/result.json     written when it has ended
    trials/00007/output.txt      what it printed
    trials/00007/reports.jsonl   its reports
    trials/00007/files/          the trial's own folder

A file appears whole or not at all. A trial without result.json has not ended, and runs again.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import SweepError

VERSION = 1
#: In the folder of a trial: how its process says that an attempt went.
ATTEMPT = "attempt.json"
#: What must be the same when a folder is continued, and what it is called in messages.
_SAME = {
    "space": "space",
    "sampler": "sampler",
    "seed": "seed",
    "goal": "goal",
    "metric": "metric",
    "objective": "what runs",
}


def write_whole(path: Path, data: bytes) -> None:
    """The file has the old content or the new, also for whoever reads at this moment or after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    write_whole(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


class Folder:
    """Reads and writes the folder of a sweep."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()

    @property
    def objective(self) -> Path:
        return self.path / "objective.json"

    @property
    def journal(self) -> Path:
        return self.path / "optuna.log"

    def trial(self, number: int) -> Path:
        return self.path / "trials" / f"{number:05}"

    # ---- what is swept

    def settings(self) -> dict[str, Any]:
        """What sweep.json says.

        Raises:
            SweepError: There is none, or it is of another version.
        """
        file = self.path / "sweep.json"
        try:
            settings: dict[str, Any] = json.loads(file.read_bytes())
        except FileNotFoundError:
            raise SweepError(
                f"no sweep in {self.path}: there is no sweep.json; give a sweep's folder, or start one by "
                "`python -m ddl_sweep run`"
            ) from None
        except ValueError:
            raise SweepError(f"{file} is no JSON; restore it, or sweep in another folder") from None
        if settings.get("version") != VERSION:
            raise SweepError(
                f"{file} is of version {settings.get('version')}, this is {VERSION}; use another folder"
            )
        return settings

    def open(self, settings: Mapping[str, Any]) -> None:
        """Begins the sweep, or continues it.

        Raises:
            SweepError: The folder has another sweep; the text names the differences.
        """
        if not (self.path / "sweep.json").exists():
            write_json(self.path / "sweep.json", {"version": VERSION, **settings})
            return
        old = self.settings()
        for key, name in _SAME.items():
            # Texts, as the order of parameters counts: it is the order of a grid.
            before, now = json.dumps(old.get(key)), json.dumps(settings.get(key))
            if before != now:
                raise SweepError(
                    f"{self.path} has another sweep: its {name} is {before}, now {now}; use another folder, "
                    "or remove this one"
                )
        if old.get("trials") != settings["trials"]:
            write_json(self.path / "sweep.json", {**old, "trials": settings["trials"]})

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Makes sure that one driver alone works in the folder; the kernel ends this with the process."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "driver.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SweepError(
                    f"another process runs the sweep in {self.path}; wait for its end, or use another folder"
                ) from None
            except OSError as error:
                raise SweepError(
                    f"{file.name} cannot be locked: {error.strerror}; use a folder on a file system with "
                    "flock (Lustre: mounted with -o flock)"
                ) from error
            yield

    # ---- its trials

    def begun(self) -> dict[int, dict[str, Any]]:
        """trial.json of all trials that have started, by number."""
        return self._all("trial.json")

    def results(self) -> dict[int, dict[str, Any]]:
        """result.json of all trials that have ended, by number."""
        return self._all("result.json")

    def begun_one(self, number: int) -> dict[str, Any] | None:
        return _read(self.trial(number) / "trial.json")

    def result(self, number: int) -> dict[str, Any] | None:
        return _read(self.trial(number) / "result.json")

    def begin(self, number: int, content: Mapping[str, Any]) -> None:
        write_json(self.trial(number) / "trial.json", dict(content))

    def record(self, outcome: Mapping[str, Any]) -> None:
        write_json(self.trial(outcome["number"]) / "result.json", dict(outcome))

    def forget(self, number: int) -> None:
        """The trial shall run again."""
        (self.trial(number) / "result.json").unlink(missing_ok=True)

    def _all(self, name: str) -> dict[int, dict[str, Any]]:
        contents = {}
        trials = self.path / "trials"
        for folder in sorted(trials.iterdir()) if trials.is_dir() else []:
            content = _read(folder / name) if folder.name.isdecimal() else None
            if content is not None:
                contents[int(folder.name)] = content
        return contents


def _read(file: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        raise SweepError(f"{file} is no JSON; remove it, and its trial runs again") from None
    return content
