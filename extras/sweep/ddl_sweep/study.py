"""The store of a sweep: a study of Optuna, whose journal is the file optuna.log in the sweep's folder.

User attributes of the study are the definition. Those of its trials are `sweep` (the trial's number and
parameters) and `outcome`. A trial without an outcome runs again. One that failed and shall run again is a new
trial for Optuna, with the same number here.
"""

from __future__ import annotations

import fcntl
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .definition import Definition
from .errors import SweepError, required
from .objective import unpickled
from .space import combination
from .worker import Outcome, Task

_NAME = "sweep"
_JOURNAL = "optuna.log"


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Makes sure that one driver alone works in the folder; the kernel ends this with the process. Optuna
    would let two of them run the same trials.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "driver.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SweepError(
                f"another process runs the sweep in {folder}; wait for its end, or use another folder"
            ) from None
        except OSError as error:
            raise SweepError(
                f"{file.name} cannot be locked: {error.strerror}; use a folder on a file system with flock "
                "(Lustre: mounted with -o flock)"
            ) from error
        yield


def _optuna() -> Any:
    module = required("optuna", "optuna", "ddl_sweep")
    module.logging.set_verbosity(module.logging.WARNING)
    return module


def _open(journal: Path, goal: str | None = None, pruner: Any = None) -> Any:
    """The study of a journal; a new one where there is none and a goal is given."""
    optuna = _optuna()
    if goal is None and not journal.exists():
        raise SweepError(
            f"no sweep in {journal.parent}: there is no {journal.name}; give a sweep's folder, or start one "
            "by `python -m ddl_sweep run`"
        )
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    try:
        if goal is None:
            storage = optuna.storages.JournalStorage(backend)
            return optuna.load_study(study_name=_NAME, storage=storage, pruner=pruner)
        _mend(journal)
        storage = optuna.storages.JournalStorage(backend)
        return optuna.create_study(storage=storage, study_name=_NAME, direction=goal, load_if_exists=True)
    except (KeyError, ValueError) as error:
        raise SweepError(
            f"{journal} is no journal of a sweep: {error}; restore it, or use another folder"
        ) from error


def _mend(journal: Path) -> None:
    """Cuts off a last line that a crash of its writer has left incomplete: Optuna would read no further."""
    lock = _optuna().storages.journal.JournalFileSymlinkLock(str(journal))
    lock.acquire()
    try:
        with journal.open("rb+") as file:
            file.truncate(file.read().rfind(b"\n") + 1)
    finally:
        lock.release()


def running_trial(task: Task) -> Any:
    """Optuna's trial of a task, in the trial's own process."""
    pruners = _optuna().pruners
    pruner = unpickled(task["pruner"]) if task["pruner"] else None
    if isinstance(pruner, str):
        names = {
            "median": "MedianPruner",
            "halving": "SuccessiveHalvingPruner",
            "hyperband": "HyperbandPruner",
        }
        pruner = getattr(pruners, names[pruner])()
    study = _open(Path(task["journal"]), pruner=pruner or pruners.NopPruner())
    return _optuna().trial.Trial(study, task["id"])


class Study:
    """What a folder holds.

    Attributes:
        folder: Of the sweep.
        identity, trials, how: Its Definition.
        optuna: The study.
    """

    def __init__(self, folder: str | os.PathLike[str], definition: Definition | None = None) -> None:
        """Opens the sweep of a folder. The owner of the folder gives a definition, which begins the sweep or
        continues it.

        Raises:
            SweepError: There is no sweep, or another one; the text names the difference.
        """
        self.folder = Path(folder).absolute()
        self.optuna = _open(self.folder / _JOURNAL, definition.identity["goal"] if definition else None)
        self._own_sampler: Any = None
        attributes = self.optuna.user_attrs
        for name, now in definition.identity.items() if definition and attributes else ():
            # Texts, as the order of parameters counts: it is the order of a grid.
            before, text = json.dumps(attributes["identity"][name]), json.dumps(now)
            if before != text:
                raise SweepError(
                    f"{self.folder} has another sweep: its {name} is {before}, now {text}; use another "
                    "folder, or remove this one"
                )
        for key in ("identity", "trials", "how") if definition else ():
            value = getattr(definition, key)
            if attributes.get(key) != value:
                self.optuna.set_user_attr(key, value)
            attributes[key] = value
        if "how" not in attributes:
            raise SweepError(
                f"the sweep in {self.folder} was interrupted as it began; start it again as the first time"
            )
        self.identity, self.trials, self.how = (attributes[key] for key in ("identity", "trials", "how"))

    def begun(self) -> dict[int, Any]:
        """Optuna's trials, also those that have ended, by number."""
        trials = self.optuna.get_trials(deepcopy=False)
        return {trial.user_attrs["sweep"]["number"]: trial for trial in trials if "sweep" in trial.user_attrs}

    def outcomes(self) -> dict[int, Outcome]:
        """How the trials went that have ended, by number."""
        return {
            number: {**trial.user_attrs["sweep"], **trial.user_attrs["outcome"]}
            for number, trial in sorted(self.begun().items())
            if "outcome" in trial.user_attrs
        }

    def unfinished(self, retry_failed: bool = False) -> list[int]:
        """Numbers of the trials that are to run. Optuna learns what ended without its knowledge."""
        for number, outcome in self.outcomes().items():
            self.end(number, outcome)
            if retry_failed and outcome["status"] == "failed":
                self._ask(number, outcome["params"])
        return sorted(set(range(self.trials)) - self.outcomes().keys())

    def begin(self, number: int, hosts: str | None = None) -> Task:
        """The task of a trial. A trial that was interrupted keeps its parameters."""
        if number not in self.begun():
            grid = self.identity["sampler"] == "grid"
            self._ask(number, combination(self.identity["space"], number) if grid else None)
        trial = self.begun()[number]
        return {
            **self.how,
            **trial.user_attrs["sweep"],
            "id": trial._trial_id,
            "journal": str(self.folder / _JOURNAL),
            "folder": str(self.folder / f"trials/{number:05}"),
            "metric": self.identity["metric"],
            "hosts": hosts,
        }

    def end(self, number: int, outcome: Outcome) -> None:
        """Keeps how a trial went, unless that is known."""
        trial, states = self.begun()[number], _optuna().trial.TrialState
        if "outcome" not in trial.user_attrs:
            self.optuna._storage.set_trial_user_attr(trial._trial_id, "outcome", outcome)
        state = {"done": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}[outcome["status"]]
        value = outcome["value"] if state == states.COMPLETE else None
        self.optuna.tell(trial.number, value, state, skip_if_finished=True)

    def _ask(self, number: int, params: dict[str, Any] | None) -> None:
        self.optuna.sampler = self._sampler(number, params)
        trial = self.optuna.ask(self._distributions())
        if params is None:
            params = {name: self._decoded(name, trial.params[name]) for name in self.identity["space"]}
        trial.set_user_attr("sweep", {"number": number, "params": params})

    def _sampler(self, number: int, params: dict[str, Any] | None) -> Any:
        """A sampler whose random numbers follow from the trial's number alone: they are the same on every
        engine, and differ from those of other processes that ask at the same time.
        """
        optuna = _optuna()
        samplers = optuna.samplers
        seed = (self.identity["seed"] * 1_000_003 + number) % (1 << 31)
        names = {"random": "RandomSampler", "gp": "GPSampler", "cmaes": "CmaEsSampler"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            if params is not None:
                # Optuna's own grid has another order, and its queue gives a trial to whoever asks first.
                encoded = {name: _encoded(value) for name, value in params.items()}
                return samplers.PartialFixedSampler(encoded, samplers.RandomSampler(seed))
            if self.how["sampler"] is None:
                if self.identity["sampler"] == "tpe":
                    return samplers.TPESampler(seed=seed, constant_liar=True)
                return getattr(samplers, names[self.identity["sampler"]])(seed=seed)
        if self._own_sampler is None:
            self._own_sampler = unpickled(self.how["sampler"])
            if number:
                self._own_sampler.reseed_rng()
        return self._own_sampler

    def _distributions(self) -> dict[str, Any]:
        distributions = _optuna().distributions
        by_name: dict[str, Any] = {}
        for name, parameter in self.identity["space"].items():
            if isinstance(parameter, list):
                by_name[name] = distributions.CategoricalDistribution([*map(_encoded, parameter)])
            else:
                kind = "IntDistribution" if parameter["integer"] else "FloatDistribution"
                by_name[name] = getattr(distributions, kind)(*parameter["uniform"], log=parameter["log"])
        return by_name

    def _decoded(self, name: str, value: Any) -> Any:
        parameter = self.identity["space"][name]
        choices = parameter if isinstance(parameter, list) else []
        return next((choice for choice in choices if _encoded(choice) == value), value)


def _encoded(value: Any) -> Any:
    """Optuna's choices are scalars; lists go as their text."""
    return json.dumps(value) if isinstance(value, list | dict) else value
