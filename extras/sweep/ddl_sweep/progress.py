"""How far a sweep is: a line for every trial, on a terminal above a bar. On standard error."""

from __future__ import annotations

import shutil
import sys
from typing import Any

from .result import Result, TrialResult, summary
from .study import Study
from .worker import Outcome


class Progress:
    """A context manager around the trials."""

    def __init__(self, study: Study, quiet: bool) -> None:
        from tqdm import tqdm  # Optuna depends on it

        self._study, self._quiet = study, quiet
        size = shutil.get_terminal_size()  # also where a terminal does not say it
        before = len([number for number in study.outcomes() if number < study.trials])
        self._bar = tqdm(
            total=study.trials,
            initial=before,
            disable=quiet or not sys.stderr.isatty(),
            ncols=size.columns,
            nrows=size.lines,
            bar_format="trials {n_fmt}/{total_fmt} {bar} {elapsed} {desc}",
        )
        self._done = before
        if before:
            self._line(f"{before} of {study.trials} trials have ended before")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.close()

    def ended(self, outcome: Outcome) -> None:
        if self._quiet:
            return
        trial, result = TrialResult(**outcome), Result.of(self._study)
        params = " ".join(
            f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in trial.params.items()
        )
        how = trial.status if trial.value is None else f"{result.metric} {trial.value:.6g}"
        if trial.error is not None:
            how += f": {summary(trial.error)}"
        elif trial.status == "pruned" and trial.value is not None:
            how += " (pruned)"
        best = (
            f"best {result.metric} {result.best.value:.6g} of trial {result.best.number}"
            if result.done
            else "no trial done yet"
        )
        best += f"; {len(result.failed)} failed" if result.failed else ""
        self._done += 1
        self._line(f"{self._done}/{self._study.trials} trial {trial.number} {params}: {how}; {best}")
        self._bar.set_description_str(best, refresh=False)
        self._bar.update()

    def lost(self, number: int, why: str) -> None:
        self._line(f"trial {number} is lost and runs again: {why}")

    def _line(self, text: str) -> None:
        if not self._quiet:
            self._bar.write(f"sweep: {text}", file=sys.stderr)
            sys.stderr.flush()
