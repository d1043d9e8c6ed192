"""Hands modules to those who import them: scripts get TensorFlow 1's, libraries TensorFlow 2's."""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import importlib.util
import sys
import sysconfig
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from types import FrameType, ModuleType
from typing import Any

#: Packages of this project: in a development environment they lie outside site-packages.
_OWN_PACKAGES = frozenset(
    (
        *("ddl", "ddl_chainer", "ddl_drift", "ddl_spark", "ddl_sweep", "ddl_tf1", "ddl_validate", "ddlrun"),
        *("lms", "pyddl"),
    )
)
_FOLDERS_OF_PACKAGES = ("/site-packages/", "/dist-packages/")
_STANDARD_LIBRARY = tuple(sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib"))

_import: Callable[..., Any] = builtins.__import__
_import_module: Callable[..., Any] = importlib.import_module
_scripts_too: frozenset[str] = frozenset()


def install(packages: Collection[str]) -> None:
    """Replaces the import functions; once. packages: installed ones that are scripts all the same."""
    global _scripts_too, _import, _import_module
    if any(isinstance(finder, _TensorFlowFinder) for finder in sys.meta_path):
        return
    _scripts_too = frozenset(packages)
    _import, _import_module = builtins.__import__, importlib.import_module
    builtins.__import__ = _import_for_importer
    importlib.import_module = _import_module_for_importer
    sys.meta_path.insert(0, _TensorFlowFinder())


def _import_for_importer(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    if level or not name.startswith(("tensorflow", "keras")):
        return _import(name, globals, locals, fromlist, level)
    if not _is_for_script(name, fromlist or (), sys._getframe(1), globals):
        return _import(name, globals, locals, fromlist, level)
    from ddl_tf1 import _modules

    return _modules.import_for_script(name, fromlist)


def _import_module_for_importer(name: str, package: str | None = None) -> Any:
    if package is None and _is_for_script(name, (), sys._getframe(1)):
        from ddl_tf1 import _modules

        return _modules.import_for_script(name, ("__name__",))
    return _import_module(name, package)


def _is_for_script(
    name: str, fromlist: Sequence[str], frame: FrameType, names: Mapping[str, Any] | None = None
) -> bool:
    top = name.partition(".")[0]
    if top not in ("tensorflow", "keras"):
        return False
    importer = frame.f_globals if names is None else names
    # What Horovod wraps is the script's Keras; of TensorFlow it needs version 2.
    if str(importer.get("__name__")).startswith("horovod."):
        return top == "keras" or name.startswith("tensorflow.keras") or tuple(fromlist) == ("keras",)
    return _is_script(importer, frame.f_back)


def _is_script(importer: Mapping[str, Any], caller: FrameType | None) -> bool:
    """Whether a module gets TensorFlow 1. importer: its global names. caller: what has called its code."""
    name, file = str(importer.get("__name__") or ""), importer.get("__file__")
    top = name.partition(".")[0]
    if top in _scripts_too:
        return True
    if top in _OWN_PACKAGES:
        return False
    if isinstance(file, str):
        return not file.startswith(_STANDARD_LIBRARY) and not any(
            folder in file for folder in _FOLDERS_OF_PACKAGES
        )
    if name == "__main__":  # a notebook, python -c
        return True
    # Code that was generated, such as TensorFlow's for a library of operators, or is frozen into Python.
    while caller is not None and (caller.f_globals is importer or "importlib" in caller.f_code.co_filename):
        caller = caller.f_back
    return caller is None or _is_script(caller.f_globals, caller.f_back)


class _TensorFlowFinder:
    """Switches TensorFlow 2's behaviour off right after TensorFlow's own code. Finds nothing itself."""

    def __init__(self) -> None:
        self._searching = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "tensorflow" or getattr(self._searching, "now", False):
            return None
        self._searching.now = True  # the search below passes by this finder again
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching.now = False
        if spec is not None and spec.loader is not None:
            _run_after_exec(spec.loader)
        return spec


def _run_after_exec(loader: Any) -> None:
    exec_module = loader.exec_module

    def exec_and_switch(module: ModuleType) -> None:
        loader.exec_module = exec_module
        exec_module(module)
        from ddl_tf1 import _behavior

        _behavior.switch(module)

    loader.exec_module = exec_and_switch
