"""What goes wrong in a sweep, and packages that are needed only by some of it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any


class SweepError(RuntimeError):
    """A sweep cannot start, or cannot go on. The text names what, where and the remedy.

    Attributes:
        values: What the runs of launch() returned that did not fail.
    """

    values: Sequence[Any] = ()


class TrialLost(RuntimeError):
    """What ran a trial is gone, without a word on the trial: it may run again."""


def required(module: str, package: str, feature: str) -> Any:
    """A module of a package that not every environment has.

    Raises:
        SweepError: It is not installed; the text names the package.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise SweepError(
            f"{feature} needs the package {package}, which is not installed here; conda install {package}"
        ) from None
