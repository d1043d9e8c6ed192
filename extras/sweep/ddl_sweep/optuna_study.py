"""Optuna's samplers and pruners: a study whose journal is a file in the sweep's folder.

The driver asks and tells; without a driver, in Slurm's arrays, each task does so by itself. Trials keep their
own numbers: the one of Optuna is noted in trial.json.
"""

from __future__ import annotations

import json
from typing import Any

from . import samplers
from . import space as spaces
from .errors import SweepError, required
from .folder import Folder
from .objective import unpickled

_STUDY = "sweep"
PRUNERS = ("median", "halving", "hyperband")


def _optuna() -> Any:
    optuna = required("optuna", "optuna", "a sampler or pruner of Optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def check_sampler(sampler: Any) -> None:
    """Raises: SweepError: It is neither the name of a sampler nor one of Optuna."""
    if (
        sampler in samplers.NAMES
        if isinstance(sampler, str)
        else isinstance(sampler, _optuna().samplers.BaseSampler)
    ):
        return
    raise SweepError(
        f"the sampler {sampler!r} is unknown; take one of {', '.join(samplers.NAMES)}, or a sampler of Optuna"
    )


def check_pruner(pruner: Any) -> None:
    """Raises: SweepError: It is neither the name of a pruner nor one of Optuna."""
    if pruner in PRUNERS if isinstance(pruner, str) else isinstance(pruner, _optuna().pruners.BasePruner):
        return
    raise SweepError(
        f"the pruner {pruner!r} is unknown; take one of {', '.join(PRUNERS)}, or a pruner of Optuna"
    )


def _sampler(settings: dict[str, Any], pickled: str | None, first: int, alone: bool) -> Any:
    """The sampler, with random numbers that differ from those of every other process that asks.

    first: the number of the first trial that this process asks for.
    """
    optuna = _optuna()
    name = settings["sampler"]
    if name in samplers.OPTUNA_NAMES:
        seed = (settings["seed"] * 1_000_003 + first) % (1 << 31)
        classes = {
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed, constant_liar=True),
            "gp": lambda: optuna.samplers.GPSampler(seed=seed),
            "cmaes": lambda: optuna.samplers.CmaEsSampler(seed=seed),
        }
        return classes[name]()
    if pickled is None:
        return optuna.samplers.RandomSampler()  # only a pruner is wanted of the study
    sampler = unpickled(pickled)
    if alone or first:
        sampler.reseed_rng()
    return sampler


def _pruner(text: str | None) -> Any:
    optuna = _optuna()
    if text is None:
        return optuna.pruners.NopPruner()
    pruner = unpickled(text)
    if isinstance(pruner, str):
        classes = {
            "median": optuna.pruners.MedianPruner,
            "halving": optuna.pruners.SuccessiveHalvingPruner,
            "hyperband": optuna.pruners.HyperbandPruner,
        }
        return classes[pruner]()
    return pruner


def _storage(journal: str) -> Any:
    storages = _optuna().storages
    return storages.JournalStorage(storages.journal.JournalFileBackend(journal))


def running_trial(pruning: dict[str, Any]) -> Any:
    """The trial of Optuna that belongs to a task, in the trial's own process."""
    optuna = _optuna()
    study = optuna.load_study(
        study_name=_STUDY, storage=_storage(pruning["journal"]), pruner=_pruner(pruning["pruner"])
    )
    return optuna.trial.Trial(study, pruning["id"])


class Study:
    """The study of a sweep."""

    def __init__(
        self, folder: Folder, settings: dict[str, Any], pickles: dict[str, Any], alone: int | None
    ) -> None:
        """alone: the one trial that this process asks for; None: it is the driver, which asks for all."""
        optuna = _optuna()
        self._folder, self._settings = folder, settings
        self._pruner = pickles.get("pruner")
        self._space = spaces.space_of(settings["space"])
        storage = _storage(str(folder.journal))
        # Tasks of an array start at once, so what others have begun says nothing about who asks next.
        first = max(folder.begun(), default=-1) + 1 if alone is None else alone
        self._study = optuna.create_study(
            study_name=_STUDY,
            storage=storage,
            direction=settings["goal"],
            load_if_exists=True,
            sampler=_sampler(settings, pickles.get("sampler"), first, alone is not None),
            pruner=_pruner(self._pruner),
        )
        self._storage = storage

    def ask(self, number: int, params: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parameters of a trial, chosen by Optuna unless given, and what else belongs into its task."""
        if params is not None:
            # enqueue_trial() and ask() could take the trial that another process has put into the queue.
            template = _optuna().trial.create_trial(
                state=_optuna().trial.TrialState.RUNNING,
                params={name: self._encoded(value) for name, value in params.items()},
                distributions=self._distributions(),
            )
            return params, self.noted(self._storage.create_new_trial(self._study._study_id, template))
        trial = self._study.ask(fixed_distributions=self._distributions())
        chosen = {name: self._decoded(name, trial.params[name]) for name in self._space}
        return chosen, self.noted(trial._trial_id)

    def noted(self, identity: int) -> dict[str, Any]:
        return {"id": identity, "journal": str(self._folder.journal), "pruner": self._pruner}

    def knows_end(self, identity: int | None) -> bool:
        """Whether a trial has ended for Optuna, which takes no other end of it; or is none of Optuna's."""
        return identity is None or bool(self._storage.get_trial(identity).state.is_finished())

    def tell(self, identity: int, outcome: dict[str, Any]) -> None:
        """Tells how a trial went, unless the study knows."""
        optuna = _optuna()
        trial = self._storage.get_trial(identity)
        if trial.state.is_finished():
            return
        state, value = optuna.trial.TrialState.FAIL, None
        if outcome["status"] == "done":
            state, value = optuna.trial.TrialState.COMPLETE, outcome["value"]
        elif outcome["status"] == "pruned":
            state = optuna.trial.TrialState.PRUNED
        self._study.tell(trial.number, value, state=state)

    def catch_up(self) -> None:
        """Tells what ended while no driver was there to tell it."""
        results = self._folder.results()
        for number, begun in self._folder.begun().items():
            if number in results and begun.get("optuna") is not None:
                self.tell(begun["optuna"], results[number])

    def _distributions(self) -> dict[str, Any]:
        distributions = _optuna().distributions
        by_name: dict[str, Any] = {}
        for name, parameter in self._space.items():
            if isinstance(parameter, spaces.Choice):
                choices = [self._encoded(value) for value in parameter.values]
                by_name[name] = distributions.CategoricalDistribution(choices)
            elif parameter.integer:
                low, high = int(parameter.low), int(parameter.high)
                by_name[name] = distributions.IntDistribution(low, high, log=parameter.log)
            else:
                by_name[name] = distributions.FloatDistribution(
                    parameter.low, parameter.high, log=parameter.log
                )
        return by_name

    @staticmethod
    def _encoded(value: Any) -> Any:
        """Optuna's choices are scalars; lists go as their text."""
        return json.dumps(value) if isinstance(value, list | dict) else value

    def _decoded(self, name: str, value: Any) -> Any:
        parameter = self._space[name]
        if isinstance(parameter, spaces.Choice):
            for candidate in parameter.values:
                encoded = self._encoded(candidate)
                if encoded == value and type(encoded) is type(value):
                    return candidate
        return value
