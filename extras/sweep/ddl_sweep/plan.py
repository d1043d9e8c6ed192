"""Turns a sweep's folder into tasks: the same in a driver, and in a process that runs one trial alone."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from . import objective as objectives
from . import samplers
from . import space as spaces
from .errors import SweepError
from .folder import Folder, write_json
from .worker import Outcome, Task

GOALS = ("maximize", "minimize")


def goal_of(maximize: str | None, minimize: str | None) -> tuple[str, str]:
    """The goal, and the metric that it is about."""
    if maximize and minimize:
        raise SweepError("maximize and minimize are both given; a sweep has one of them")
    return ("minimize", minimize) if minimize else ("maximize", maximize or "value")


class Plan:
    """What is swept, and how its trials run.

    Attributes:
        folder: Of the sweep.
        settings: What sweep.json holds, which must stay the same.
        how: What may change when the sweep is continued: the objective's code, retries, limit, where.
    """

    def __init__(self, folder: Folder, settings: dict[str, Any], how: dict[str, Any]) -> None:
        self.folder, self.settings, self.how = folder, settings, how
        self._study: Any = None
        self.space = spaces.space_of(settings["space"])
        self._sampler = samplers.Sampler(settings["sampler"], self.space, settings["seed"])

    @classmethod
    def new(
        cls,
        train: Any,
        space: Any,
        folder: str | os.PathLike[str],
        *,
        sampler: Any,
        trials: int | None,
        maximize: str | None,
        minimize: str | None,
        seed: int,
        retries: int,
        limit_seconds: float | None,
        pruner: Any,
    ) -> Plan:
        parameters = spaces.space_of(space)
        goal, metric = goal_of(maximize, minimize)
        sampler = samplers.default(parameters) if sampler is None else sampler
        how: dict[str, Any] = {}
        if sampler not in ("grid", "random"):
            from .optuna_study import check_sampler

            check_sampler(sampler)
        if not isinstance(sampler, str):
            how["sampler"] = objectives.pickled(sampler, "the sampler")
            sampler = f"optuna.samplers.{type(sampler).__name__}"
        if pruner is not None:
            from .optuna_study import check_pruner

            check_pruner(pruner)
            how["pruner"] = objectives.pickled(pruner, "the pruner")
        if retries < 0:
            raise SweepError(f"retries={retries}: give 0 or more")
        if limit_seconds is not None and not limit_seconds > 0:
            raise SweepError(f"limit_seconds={limit_seconds}: give more than 0, or None for no limit")
        if callable(train):
            objective = objectives.of_function(train, parameters)
        elif isinstance(train, Sequence) and not isinstance(train, str):
            objective = objectives.of_program([str(word) for word in train], parameters)
        else:
            raise SweepError(f"{train!r} cannot be run; give a function, or a list of a program's words")
        settings = {
            "space": spaces.to_json(parameters),
            "sampler": sampler,
            "seed": int(seed),
            "goal": goal,
            "metric": metric,
            "objective": objectives.described(objective),
            "trials": samplers.count(sampler, parameters, trials),
        }
        how |= {"objective": objective, "retries": retries, "limit": limit_seconds, "cwd": os.getcwd()}
        return cls(Folder(folder), settings, how)

    @classmethod
    def of(cls, folder: Folder) -> Plan:
        """The plan that a folder holds."""
        settings = folder.settings()
        try:
            how = json.loads(folder.objective.read_bytes())
        except FileNotFoundError:
            raise SweepError(
                f"{folder.objective} is missing; start the sweep again as the first time"
            ) from None
        return cls(folder, settings, how)

    def save(self) -> None:
        """Begins the sweep in the folder, or continues it there.

        Raises:
            SweepError: The folder has another sweep.
        """
        self.folder.open(self.settings)
        write_json(self.folder.objective, self.how)

    def unfinished(self, retry_failed: bool = False) -> list[int]:
        """Numbers of the trials that have no result yet."""
        results = self.folder.results()
        if retry_failed:
            for number in [n for n, result in results.items() if result["status"] == "failed"]:
                self.folder.forget(number)
                del results[number]
        return [number for number in range(self.settings["trials"]) if number not in results]

    def begin(self, number: int, hosts: str | None = None, alone: bool = False) -> Task:
        """The task of a trial. A trial that was interrupted keeps its parameters."""
        begun = self.folder.begun_one(number)
        study = self._study_of(number if alone else None)
        pruning = None
        # Optuna is told of a failure; a trial that runs again after one is a new trial for it.
        if begun is None or (study is not None and study.knows_end(begun.get("optuna"))):
            memoryless = self.settings["sampler"] in ("grid", "random")
            params = self._sampler.params(number) if memoryless else begun and begun["params"]
            if study is not None:
                params, pruning = study.ask(number, params)
            assert params is not None
            begun = {"number": number, "params": params, "optuna": pruning and pruning["id"]}
            self.folder.begin(number, begun)
        elif study is not None:
            pruning = study.noted(begun["optuna"])
        return {
            "sweep": str(self.folder.path),
            "folder": str(self.folder.trial(number)),
            "number": number,
            "params": begun["params"],
            "objective": self.how["objective"],
            "metric": self.settings["metric"],
            "limit": self.how["limit"],
            "retries": self.how["retries"],
            "cwd": self.how["cwd"],
            "hosts": hosts,
            "pruning": pruning if "pruner" in self.how else None,
        }

    def end(self, outcome: Outcome, alone: bool = False) -> None:
        """Notes how a trial went, where its worker could not do that in this folder."""
        if self.folder.result(outcome["number"]) is None:
            self.folder.record(outcome)
        study = self._study_of(outcome["number"] if alone else None)
        begun = self.folder.begun_one(outcome["number"])
        if study is not None and begun is not None and begun.get("optuna") is not None:
            study.tell(begun["optuna"], outcome)

    def catch_up(self) -> None:
        """Tells Optuna what ended without its knowledge."""
        study = self._study_of(None)
        if study is not None:
            study.catch_up()

    def _study_of(self, alone: int | None) -> Any:
        if self.settings["sampler"] in ("grid", "random") and "pruner" not in self.how:
            return None
        if self._study is None:
            from .optuna_study import Study

            self._study = Study(self.folder, self.settings, self.how, alone)
        return self._study
