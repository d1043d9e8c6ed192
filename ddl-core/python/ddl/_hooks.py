"""Integrates DDL into a framework when that framework is imported, whichever of the two comes first.

`install()` is called by `import ddl` under a launcher. A framework that is loaded already is integrated at
once. For the others a finder at the head of `sys.meta_path` waits for their import; it finds nothing
itself, it only lets the real loader run one more function after the module's code.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

#: Framework -> the module of this package whose `integrate()` hooks it.
_INTEGRATIONS = {
    "tensorflow": "ddl.tensorflow._integration",
    "keras": "ddl.keras._keras3",
    "tf_keras": "ddl.keras._tf_keras",
    "torch": "ddl.torch._drift",
}


def _integrate(framework: str) -> None:
    try:
        module = importlib.import_module(_INTEGRATIONS[framework])
        module.integrate()
    except ImportError as error:
        # Which a framework that imports another may take for the other's absence, and go on unaveraged.
        raise RuntimeError(f"DDL cannot integrate itself into {framework}: {error}") from error
    if framework == "tensorflow":
        # It brings an old copy of Keras.
        importlib.import_module(_INTEGRATIONS["tf_keras"]).integrate_tensorflows_copy()


def _wanted() -> list[str]:
    """What can be integrated here. Keras 3 may run on PyTorch, or on a backend that is refused."""
    missing = [
        name
        for name, package in (
            ("tensorflow", "ddl.tensorflow"),
            ("tf_keras", "ddl.tensorflow"),
            ("torch", "ddl.torch"),
        )
        if importlib.util.find_spec(package) is None
    ]
    return [framework for framework in _INTEGRATIONS if framework not in missing]


class _PostImportFinder(importlib.abc.MetaPathFinder):
    """Runs the integration of a framework right after the framework's own code."""

    def __init__(self, frameworks: Sequence[str]) -> None:
        self._frameworks = tuple(frameworks)
        self._searching = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._frameworks or getattr(self._searching, "now", False):
            return None
        self._searching.now = True  # the search below passes by this finder again
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching.now = False
        if spec is None or spec.loader is None:
            return None
        _run_after_exec(spec.loader, fullname)
        return spec


def _run_after_exec(loader: Any, fullname: str) -> None:
    """Makes this one loader object integrate the framework after it has executed the module.

    The method is replaced on the object rather than the loader by a wrapper: resources, source code and
    file names of the package are asked from the loader later, and must keep coming from the real one.
    """
    exec_module = loader.exec_module

    def exec_and_integrate(module: ModuleType) -> None:
        loader.exec_module = exec_module
        exec_module(module)
        _integrate(fullname)

    loader.exec_module = exec_and_integrate


def install() -> None:
    """Starts the integration of TensorFlow, Keras and PyTorch, of those for which DDL is installed.

    May be called any number of times.
    """
    if any(isinstance(finder, _PostImportFinder) for finder in sys.meta_path):
        return
    frameworks = _wanted()
    sys.meta_path.insert(0, _PostImportFinder(frameworks))
    for framework in frameworks:
        if framework in sys.modules:
            _integrate(framework)
