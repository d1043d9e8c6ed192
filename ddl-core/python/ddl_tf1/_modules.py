"""Finds the modules that scripts import: `tensorflow`, `keras`, and those below them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from ddl_tf1._facade import ESTIMATOR, Facade

_roots: dict[str, Facade] = {}
#: Where TensorFlow 1 had what is a part of another module today.
_MOVED = {
    "tensorflow.python.ops.rnn_cell": "tensorflow.nn.rnn_cell",
    "tensorflow.python.ops.rnn_cell_impl": "tensorflow.nn.rnn_cell",
    "tensorflow.python.pywrap_tensorflow": "tensorflow.pywrap_tensorflow",
}
_SOURCES_OF_KERAS = "tensorflow.python.keras"
#: Below tensorflow.python.keras, and in the sources of tf_keras.
_KERAS_SOURCES = {
    "optimizer_v1": "optimizers.optimizer_v1",
    "optimizer_v2": "optimizers.legacy",
    "optimizer_v2.optimizer_v2": "optimizers.legacy.optimizer_v2",
    "saving.hdf5_format": "saving.legacy.hdf5_format",
}
#: Files and folders of contrib whose names scripts import.
_FILES_OF_CONTRIB = frozenset(
    (
        *("base", "core_rnn_cell", "datasets", "framework", "hparam", "initializers", "layers", "learn"),
        *("learning", "lookup_ops", "loss_ops", "losses", "metric_ops", "metrics", "mnist", "ops"),
        *("optimizers", "regularizers", "rnn", "rnn_cell", "slim", "training", "utils", "variables"),
        "arg_scope",
    )
)


def root(top: str) -> Facade:
    """The module that `import tensorflow` or `import keras` gives a script."""
    if top not in _roots:
        source = importlib.import_module(f"ddl_tf1._{top}")
        _roots.setdefault(top, source.make())  # another thread may have come first
    return _roots[top]


def import_for_script(name: str, fromlist: Sequence[str] | None) -> Any:
    """What `__import__` returns: the module of that name if names of it are taken, else its first part.

    Raises:
        ImportError: There is no such module; the text says what to write instead. The module that is returned
            raises it for a name.
    """
    leaf = module(name)
    if not fromlist:
        return root(name.partition(".")[0])
    submodules: dict[str, Callable[[], Any]] = {}
    for each in fromlist:
        if each == "*" or hasattr(leaf, each):
            continue
        try:
            submodules[each] = _constant(module(f"{name}.{each}"))
        except ModuleNotFoundError as missing:
            if not str(missing.name).startswith(("keras", "tensorflow", "tf_keras")):
                raise  # the module is there, and lacks what it imports
            try:
                getattr(leaf, each)
            except AttributeError as error:
                # At its use, as a statement does: a call of __import__ may name anything.
                submodules[each] = _absent(name, each, str(error))
    return Facade(name, [lambda: leaf], submodules) if submodules else leaf


def module(name: str) -> ModuleType:
    """The module that a script means by a dotted name."""
    top, *parts = name.split(".")
    current: Any = root(top)
    for number, part in enumerate(parts, 1):
        path = ".".join([top, *parts[:number]])
        if top == "tensorflow" and parts[:1] == ["contrib"] and number == 3 and part == "python":
            current = files_of_contrib(current, path)
        else:
            current = _submodule(current, part, path)
    result: ModuleType = current
    return result


def sources(path: str = "tensorflow.python") -> Facade:
    """A folder of TensorFlow's sources, with what TensorFlow 1 had in it."""
    replacements: dict[str, Callable[[], Any]] = {}
    for old, new in _MOVED.items():
        if old.startswith(f"{path}."):
            child, below, _ = old.removeprefix(f"{path}.").partition(".")
            replacements[child] = partial(sources, f"{path}.{child}") if below else partial(module, new)
    if path == "tensorflow.python":
        replacements["keras"] = _SourcesOfKeras
    return Facade(path, [path], replacements, {"estimator": ESTIMATOR})


def files_of_contrib(package: ModuleType, path: str) -> Facade:
    """The folder `python` of a part of contrib, where contrib kept its sources."""
    return _FilesOfContrib(package, path)


class _SourcesOfKeras(Facade):
    """tensorflow.python.keras, or a module below it: the names of tf.keras, then those of tf_keras' files."""

    def __init__(self, path: str = _SOURCES_OF_KERAS) -> None:
        rest = path.removeprefix(_SOURCES_OF_KERAS)
        bases: list[ModuleType] = []
        for find, name in ((module, f"tensorflow.keras{rest}"), (_file_of_keras, rest.lstrip("."))):
            try:
                bases.append(find(name))
            except ModuleNotFoundError as missing:
                if not str(missing.name).startswith(("keras", "tensorflow.keras", "tf_keras")):
                    raise  # the module is there, and lacks what it imports
        if not bases:
            raise ModuleNotFoundError(f"No module named {path!r}", name=path)
        super().__init__(path, [_constant(base) for base in bases])

    def __getattr__(self, name: str) -> Any:
        error = None
        try:
            value = super().__getattr__(name)
        except AttributeError as missing:
            if name.startswith("__"):
                raise
            value, error = None, missing
        if error is None and not isinstance(value, ModuleType):
            return value
        if name == "_impl":  # of TensorFlow 1.4
            value = Facade(f"{self.__name__}._impl", [], {"keras": _constant(self)})
        else:
            try:
                value = _SourcesOfKeras(f"{self.__name__}.{name}")
            except ModuleNotFoundError:
                if error is not None:
                    raise error from None
        self.__dict__[name] = value
        return value


def _file_of_keras(source: str) -> ModuleType:
    for old in sorted(_KERAS_SOURCES, key=len, reverse=True):
        if source == old or source.startswith(f"{old}."):
            source = _KERAS_SOURCES[old] + source[len(old) :]
            break
    return importlib.import_module(f"tf_keras.src.{source}".rstrip("."))


class _FilesOfContrib(Facade):
    """A folder or file of contrib, of which scripts take what the package has."""

    def __init__(self, package: ModuleType, path: str) -> None:
        super().__init__(path, [_constant(package)])

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name not in _FILES_OF_CONTRIB:
                raise
        return self.file(name)

    def file(self, name: str) -> Facade:
        """A file or folder in this one."""
        path = f"{self.__name__}.{name}"
        if name not in _FILES_OF_CONTRIB:
            part = ".".join(path.split(".")[:3])
            raise ModuleNotFoundError(
                f"No module named {path!r}: TensorFlow 1 mode has the names of {part}, not its files",
                name=path,
            )
        return _FilesOfContrib(self._bases[0], path)

    def __dir__(self) -> list[str]:
        return dir(self._bases[0])


def _submodule(parent: Any, part: str, path: str) -> Any:
    try:
        value = getattr(parent, part)
    except AttributeError as error:
        value = None
        if not _may_have_files(parent, part):
            raise ModuleNotFoundError(f"No module named {path!r}: {error}", name=path) from None
    if isinstance(value, ModuleType):
        return value
    if isinstance(parent, _FilesOfContrib):
        return parent.file(part)
    # one that nobody has imported yet, such as tensorflow.python.tools.freeze_graph
    return importlib.import_module(f"{parent.__name__}.{part}")


def _may_have_files(parent: ModuleType, part: str) -> bool:
    """Whether a module may lie below a parent that does not have it as a name."""
    if type(parent) is Facade:
        return parent.__name__.startswith("tensorflow.python") and part not in parent._gone
    return not isinstance(parent, _SourcesOfKeras) and not parent.__name__.startswith("ddl_tf1.")


def _absent(module: str, name: str, reason: str) -> Callable[[], Any]:
    def fail() -> Any:
        raise ImportError(f"cannot import name {name!r}: {reason}", name=module)

    return fail


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value
