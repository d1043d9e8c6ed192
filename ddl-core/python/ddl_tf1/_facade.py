"""A module whose names are its own first, then those of other modules."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

#: A name's value: the name of a module, or a function that makes it.
Source = str | Callable[[], Any]

#: What to write in place of tf.estimator.
ESTIMATOR = (
    "Estimators ended with TensorFlow 2.15: call the model function yourself and train its train_op in "
    "tf.train.MonitoredTrainingSession, or use tf.keras"
)


class Facade(ModuleType):
    """A module that takes its names from others.

    What a name means is asked at every use: ddl replaces functions of TensorFlow when it is imported.
    """

    def __init__(
        self,
        name: str,
        bases: Sequence[Source],
        replacements: Mapping[str, Source] | None = None,
        gone: Mapping[str, str] | None = None,
    ) -> None:
        """Make the module.

        Args:
            name: The name shown in errors.
            bases: The modules that are asked, in this order.
            replacements: Names that come before those of the bases.
            gone: What to write in place of names that nobody has.
        """
        super().__init__(name, f"{name} in TensorFlow 1 mode; see ddl_tf1.")
        self.__dict__["_bases"] = [value_of(base) for base in bases]
        self.__dict__["_replacements"] = dict(replacements or {})
        self.__dict__["_gone"] = dict(gone or {})
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in self._replacements:
            value = value_of(self._replacements[name])
            self.__dict__[name] = value
            return value
        if not (name.startswith("__") and name.endswith("__")):
            for base in self._bases:
                try:
                    return getattr(base, name)
                except AttributeError:
                    pass
        raise AttributeError(missing(self.__name__, name, self._gone))

    def __dir__(self) -> list[str]:
        names = {name for name in self.__dict__ if not name.startswith("_")}
        names.update(*(dir(base) for base in self._bases), self._replacements)
        return sorted(names)

    @property
    def __all__(self) -> list[str]:
        return [name for name in dir(self) if not name.startswith("_")]

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.__name__,)


def _again(name: str) -> Any:
    from ddl_tf1 import _modules

    return _modules.module(name)


def value_of(source: Source) -> Any:
    """The module of a name, or what a function returns."""
    return importlib.import_module(source) if isinstance(source, str) else source()


def missing(module: str, name: str, gone: Mapping[str, str]) -> str:
    """What an error says about a name that a module does not have."""
    public_name = module.replace("tensorflow", "tf", 1)
    remedy = gone.get(name, "docs/train/tensorflow1.md lists what there is")
    lacks = f"TensorFlow 1 mode has no {public_name}.{name}"
    return f"module '{module}' has no attribute '{name}': {lacks}; {remedy}"


def getattr_of(module: str, gone: Mapping[str, str]) -> Callable[[str], Any]:
    """The function __getattr__ of a part of contrib: has its folder `python`, and the remedies for `gone`."""

    def __getattr__(name: str) -> Any:
        if name == "python":
            from ddl_tf1 import _modules

            return _modules.module(f"{module}.python")
        raise AttributeError(missing(module, name, gone))

    return __getattr__
