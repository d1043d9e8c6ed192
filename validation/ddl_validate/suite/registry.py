"""All checks, in the order in which they are made: cheap ones that explain the others come first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from .bench import Bench
from .model import CheckResult

ENVIRONMENT = "environment"
"""The one check that is made before there is a bench: on hosts that ddlrun may not be able to use."""

#: Those that need a host for themselves.
MEASURING = frozenset(
    [
        *("hosts", "links", "rails", "sums", "allreduce", "training", "frameworks", "gpu", "sustained"),
        *("module", "image"),
    ]
)

# a module of checks/ each
ORDER = (
    ENVIRONMENT,
    "imports",
    "settings",
    "hosts",
    "links",
    "rails",
    "sums",
    "allreduce",
    "training",
    "frameworks",
    "fabric",
    "gpu",
    "sustained",
    "module",
    "image",
    "published",
)


@dataclass(frozen=True)
class Check:
    """name: as on the command line, and that of its module in checks/."""

    name: str

    @property
    def title(self) -> str:
        return str(self._module.TITLE)

    @property
    def run(self) -> Callable[[Bench, list[CheckResult]], CheckResult]:
        """check(bench, results of the checks before it)."""
        check: Callable[[Bench, list[CheckResult]], CheckResult] = self._module.check
        return check

    @property
    def _module(self) -> ModuleType:
        return import_module(f"{__package__}.checks.{self.name}")


@cache
def checks() -> dict[str, Check]:
    """The checks of this release, by name."""
    return {name: Check(name) for name in ORDER if find_spec(f"{__package__}.checks.{name}")}
