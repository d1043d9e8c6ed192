"""This package, as programs on other hosts and in other Pythons find it."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = __name__.partition(".")[0]
_TREE = Path(__file__).resolve().parents[2]


def module_command(prefix: Path, module: str, *arguments: str) -> list[str]:
    """A module of this package in the Python of an environment."""
    return [str(prefix / "bin" / "python"), "-P", "-m", f"{_PACKAGE}.{module}", *arguments]


def module_variables() -> dict[str, str]:
    """What Python needs to find this package: nothing where it is installed, as it then is in the environment
    that is asked."""
    if "site-packages" in _TREE.parts:
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(_TREE), os.environ.get("PYTHONPATH", "")]))}
