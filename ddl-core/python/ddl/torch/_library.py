"""Loads the extension, which lies beside this file."""

from __future__ import annotations

from types import ModuleType

import torch


def _load() -> ModuleType:
    try:
        from ddl.torch import _backend
    except ImportError as error:
        raise ImportError(
            f"DDL's backend does not load into torch {torch.__version__}: {error}; install the ddl-pytorch "
            "that was built for this torch"
        ) from error
    # C++ has no stable interface there: another version may load and then fail anywhere. What is behind the +
    # names the builds of a version, which have the same one.
    if torch.__version__.partition("+")[0] != _backend.TORCH_VERSION.partition("+")[0]:
        raise ImportError(
            f"DDL's backend was built for torch {_backend.TORCH_VERSION}, but this is {torch.__version__}; "
            "install the ddl-pytorch that was built for this torch"
        )
    return _backend


backend = _load()
