"""The module that `import keras` gives a script: tf_keras, under the names of Keras 2.2."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ddl_tf1._facade import Facade

_API = "tf_keras.api._v1.keras"
_SOURCES = "tf_keras.src"
VERSION = "2.2.4"

#: Files that Keras kept its layers in; scripts take them from there.
_FILES_OF_LAYERS = (
    *("advanced_activations", "convolutional", "convolutional_recurrent", "core", "cudnn_recurrent"),
    *("embeddings", "local", "merge", "noise", "normalization", "pooling", "recurrent", "wrappers"),
)
_FILES_OF_UTILS = (
    *("conv_utils", "data_utils", "generic_utils", "io_utils", "layer_utils", "losses_utils", "np_utils"),
    *("tf_utils", "vis_utils"),
)
_GONE_OF_UTILS = {
    "HDF5Matrix": "open the file with h5py and pass model.fit the arrays",
    "multi_gpu_model": "start one rank for each GPU: `ddlrun` and `import ddl`",
    "training_utils": "multi_gpu_model is gone: start one rank for each GPU, with `ddlrun` and `import ddl`",
}
_OPTIMIZERS = ("SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "Adamax", "Nadam")


def make() -> Facade:
    """Make the module."""
    require_tf_keras()
    keras = _package(
        "keras",
        {
            "backend": _backend,
            "engine": _engine,
            "initializations": f"{_API}.initializers",
            "layers": _layers,
            "models": lambda: Facade("keras.models", [f"{_API}.models", f"{_SOURCES}.models"]),
            "objectives": f"{_API}.losses",
            "optimizers": _optimizers,
            "utils": _utils,
        },
        {
            "legacy": "leave its decorators out: they translated the arguments of Keras 1",
            "wrappers": "keras.wrappers.scikit_learn became the package scikeras",
        },
    )
    keras.__dict__["__version__"] = VERSION
    _add_predictions(keras.Sequential)
    return keras


def require_tf_keras() -> None:
    """Raises ImportError where Keras 2 is not installed."""
    if importlib.util.find_spec("tf_keras") is None:
        raise ImportError(
            "tf.keras and tf.layers of TensorFlow 1 mode are in tf_keras, which is not installed: install "
            "powerai-tf-keras",
            name="tf_keras",
        )


def _package(name: str, replacements: Any, gone: Any = None) -> Facade:
    path = name.partition(".")[2]
    return Facade(name, [f"{_API}.{path}" if path else _API], replacements, gone)


def _layers() -> Facade:
    layers = _package("keras.layers", {}, {"Merge": "use keras.layers.add, concatenate and their like"})
    for name in _FILES_OF_LAYERS:
        layers._replacements[name] = _file_of_layers(layers, name)
    return layers


def _file_of_layers(layers: Facade, name: str) -> Any:
    return lambda: Facade(f"keras.layers.{name}", [lambda: layers])


def _utils() -> Facade:
    replacements = {name: _file_of_utils(name) for name in _FILES_OF_UTILS}
    replacements["print_summary"] = lambda: (
        importlib.import_module(f"{_SOURCES}.utils.layer_utils").print_summary
    )
    return _package("keras.utils", replacements, _GONE_OF_UTILS)


def _file_of_utils(name: str) -> Any:
    return lambda: Facade(
        f"keras.utils.{name}", [f"{_API}.utils", f"{_SOURCES}.utils.{name}"], {}, _GONE_OF_UTILS
    )


def _optimizers() -> Facade:
    api = importlib.import_module(f"{_API}.optimizers")
    replacements = {name.lower(): _constant(getattr(api, name)) for name in _OPTIMIZERS}
    replacements["TFOptimizer"] = lambda: (
        importlib.import_module(f"{_SOURCES}.optimizers.optimizer_v1").TFOptimizer
    )
    return _package("keras.optimizers", replacements)


def _constant(value: Any) -> Any:
    return lambda: value


def _engine() -> Facade:
    gone = {"Container": "use keras.models.Model", "Network": "use keras.models.Model"}
    names = ("base_layer", "input_layer", "input_spec", "sequential", "training")
    sources: Sequence[Any] = [_API, f"{_API}.layers", *(f"{_SOURCES}.engine.{name}" for name in names)]
    replacements = {
        name: _file_of_engine(name, sources, gone)
        for name in ("base_layer", "input_layer", "network", "saving", "sequential", "topology", "training")
    }
    return Facade("keras.engine", sources, replacements, gone)


def _file_of_engine(name: str, sources: Sequence[Any], gone: dict[str, str]) -> Any:
    return lambda: Facade(f"keras.engine.{name}", sources, {}, gone)


def _backend() -> Facade:
    backend = _package("keras.backend", {"tf": _tensorflow, "image_dim_ordering": lambda: _dim_ordering})
    backend._replacements["set_image_dim_ordering"] = lambda: _set_dim_ordering
    backend._replacements["tensorflow_backend"] = lambda: backend
    backend._replacements["common"] = lambda: backend
    backend._gone["_get_available_gpus"] = "use tf.config.list_physical_devices('GPU')"
    return backend


def _tensorflow() -> ModuleType:
    from ddl_tf1 import _modules

    return _modules.root("tensorflow")


def _dim_ordering() -> str:
    from tf_keras import backend

    return "th" if backend.image_data_format() == "channels_first" else "tf"


def _set_dim_ordering(ordering: str) -> None:
    from tf_keras import backend

    if ordering not in ("tf", "th"):
        raise ValueError(f"set_image_dim_ordering({ordering!r}): it is 'tf' or 'th'")
    backend.set_image_data_format("channels_first" if ordering == "th" else "channels_last")


def _add_predictions(sequential: Any) -> None:
    """The two methods of Sequential that Keras has dropped."""

    def predict_proba(self: Any, x: Any, batch_size: int = 32, verbose: int = 0) -> Any:
        return self.predict(x, batch_size=batch_size, verbose=verbose)

    def predict_classes(self: Any, x: Any, batch_size: int = 32, verbose: int = 0) -> Any:
        scores = predict_proba(self, x, batch_size, verbose)
        return np.argmax(scores, axis=-1) if scores.shape[-1] > 1 else (scores > 0.5).astype("int32")

    for method in (predict_proba, predict_classes):
        if not hasattr(sequential, method.__name__):
            setattr(sequential, method.__name__, method)
