"""WML CE's name for machine learning, for scripts that import it.

`pai4sk` was scikit-learn with Snap ML in it. Below this name are scikit-learn's own modules and functions
(`pai4sk.preprocessing` is `sklearn.preprocessing`), and the estimators of Snap ML (`pai4sk.BoostingMachine`)
where the package `snapml` is installed. That one is not free software, so it is the user who installs it.
"""

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader

import sklearn

__path__: list[str] = []
__version__ = sklearn.__version__

SNAP_ML = frozenset(
    {
        "BoostingMachine",
        "BoostingMachineClassifier",
        "BoostingMachineRegressor",
        "DecisionTreeClassifier",
        "DecisionTreeRegressor",
        "LinearRegression",
        "LogisticRegression",
        "RandomForestClassifier",
        "RandomForestRegressor",
        "RBFSampler",
        "SupportVectorMachine",
    }
)
"""Estimators that are in `pai4sk` itself: scikit-learn has none of its own there."""


class _Modules(MetaPathFinder, Loader):
    """Gives scikit-learn's module for each name below `pai4sk`: the same object, under a second name."""

    def __init__(self) -> None:
        self._own: dict[str, ModuleSpec | None] = {}

    def find_spec(self, fullname, path=None, target=None):
        name, dot, rest = fullname.partition(".")
        if name != __name__ or not dot or find_spec(f"sklearn.{rest}") is None:
            return None
        return spec_from_loader(fullname, self)

    def create_module(self, spec):
        module = importlib.import_module(f"sklearn.{spec.name.partition('.')[2]}")
        self._own[spec.name] = module.__spec__
        return module

    def exec_module(self, module):
        # the import system has just written the second name into it
        for name, own in self._own.items():
            if module.__spec__ is not None and module.__spec__.name == name:
                module.__spec__ = own
                return


sys.meta_path.append(_Modules())


def __getattr__(name):
    if name in SNAP_ML:
        try:
            return getattr(importlib.import_module("snapml"), name)
        except ModuleNotFoundError as error:
            if error.name != "snapml":
                raise
            raise ImportError(
                f"pai4sk.{name} is an estimator of Snap ML, which is not installed. Read its licence, then: "
                "pip install --no-deps snapml. Those of scikit-learn are in pai4sk.linear_model and the like."
            ) from None
    return getattr(sklearn, name)
