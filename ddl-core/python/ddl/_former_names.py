"""Old names of modules that were part of the package ddl and have packages of their own now.

`import ddl.sweep` gives the module `ddl_sweep` itself, and `python -m ddl.sweep` runs it. Where the new
package is not installed, the error names it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

#: New names of modules. Their packages in the channel have the same names, with "-" for "_".
MODULES = {
    "ddl.chainer": "ddl_chainer",
    "ddl.launch": "ddlrun",
    "ddl.spark_cluster": "ddl_spark",
    "ddl.sweep": "ddl_sweep",
}


class _Alias(Loader):
    """Loads a module under its new name, and gives it out under the old one as well."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # the import system has put the old name there
        module.__spec__ = self._spec

    def get_code(self, fullname: str) -> CodeType:
        """Returns the code that `python -m` runs."""
        spec = importlib.util.find_spec(self._name)
        code = spec.loader.get_code(self._name) if spec and spec.loader else None  # type: ignore[attr-defined]
        if code is None:
            raise ImportError(f"{self._name} has no code", name=fullname)
        assert isinstance(code, CodeType)
        return code


class _FormerNames(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        old = ".".join(fullname.split(".")[:2])
        if old not in MODULES:
            return None
        module = MODULES[old]
        if importlib.util.find_spec(module) is None:
            package = module.replace("_", "-")
            raise ImportError(
                f"{old} is the package {package} now, which is not installed; in {sys.prefix}; "
                f"install it there: conda install {package}",
                name=fullname,
            )
        name = module + fullname.removeprefix(old)
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        return ModuleSpec(
            fullname, _Alias(name), origin=spec.origin, is_package=spec.submodule_search_locations is not None
        )


def install() -> None:
    """Makes the old names importable. Only the import of one of them asks for the new package."""
    # first: by the path of the new package, the usual finder would make a second copy of each of its modules
    sys.meta_path.insert(0, _FormerNames())
