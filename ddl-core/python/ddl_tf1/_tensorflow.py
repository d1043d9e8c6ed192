"""The module that `import tensorflow` gives a script."""

from __future__ import annotations

from typing import Any

import tensorflow

from ddl_tf1._facade import ESTIMATOR, Facade

#: What scripts compare: tests such as `tf.__version__ < "2"` take the way of TensorFlow 1.
VERSION = "1.15.5"


def make() -> Facade:
    """Make the module."""
    v1: Any = tensorflow.compat.v1
    facade = Facade(
        "tensorflow",
        [lambda: v1, lambda: tensorflow],
        {
            # not that of v1, which has no Keras in its own compat.v1
            "compat": lambda: tensorflow.compat,
            "contrib": "ddl_tf1.contrib",
            "core": "tensorflow.core",
            "examples": _examples,
            "keras": lambda: _root("keras"),
            "layers": _layers,
            "python": _python,
            "pywrap_tensorflow": lambda: Facade(
                "tensorflow.pywrap_tensorflow",
                ["tensorflow.python.pywrap_tensorflow"],
                {"NewCheckpointReader": lambda: v1.train.NewCheckpointReader},
            ),
            "version": lambda: Facade(
                "tensorflow.version", [lambda: v1.version], {"VERSION": lambda: VERSION}
            ),
        },
        {"estimator": ESTIMATOR, "models": "clone the repository of models that your script is from"},
    )
    facade.__dict__.update(VERSION=VERSION, __version__=VERSION)
    for name in ("__file__", "__git_version__", "__compiler_version__"):
        facade.__dict__[name] = getattr(tensorflow, name)
    return facade


def _layers() -> Any:
    from ddl_tf1 import _keras

    _keras.require_tf_keras()
    return tensorflow.compat.v1.layers


def _root(top: str) -> Facade:
    from ddl_tf1 import _modules

    return _modules.root(top)


def _python() -> Facade:
    from ddl_tf1 import _modules

    return _modules.sources()


def _examples() -> Facade:
    mnist = Facade(
        "tensorflow.examples.tutorials.mnist",
        ["ddl_tf1.mnist"],
        {"input_data": "ddl_tf1.mnist"},
        {"mnist": "build the graph of the tutorial in your script"},
    )
    tutorials = Facade("tensorflow.examples.tutorials", [], {"mnist": lambda: mnist})
    return Facade("tensorflow.examples", [], {"tutorials": lambda: tutorials})
