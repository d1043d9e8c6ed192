"""An environment as a kernel of Jupyter: notebooks of a Jupyter that is elsewhere run their cells in it.

The environment needs ipykernel alone. What activating it would set is written into the kernel's description,
because Jupyter starts kernels without any shell.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmlce.envs import activation
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Kernel:
    """folder: where its description lies. replaced: there was one of the same environment before"""

    name: str
    folder: Path
    replaced: bool


def data_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where every Jupyter of this user looks for kernels."""
    if jupyter_folder := environment.get("JUPYTER_DATA_DIR"):
        return Path(jupyter_folder)
    share = (
        environment.get("XDG_DATA_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".local/share"
    )
    return Path(share) / "jupyter"


def register(prefix: Path, name: str, display_name: str, data: Path) -> Kernel:
    """Write the description of a kernel that runs in the environment at `prefix`."""
    if not _NAME.fullmatch(name):
        raise WmlceError(
            f"{name!r} is not a valid name for a Jupyter kernel",
            remedy="use letters, digits, '.', '_' and '-'",
        )
    if not any(prefix.glob("lib/python3.*/site-packages/ipykernel_launcher.py")):
        raise WmlceError(
            f"the environment at {prefix} has no ipykernel, which runs the cells",
            remedy="add it: wmlce env create NAME SPEC... ipykernel",
        )
    # Jupyter knows kernels by their names in small letters
    folder = data / "kernels" / name.lower()
    file = folder / "kernel.json"
    python = prefix / "bin/python"
    current = _python_of(file)
    if current is not None and current != str(python):
        raise WmlceError(
            f"there is a kernel {name} already, of another Python: {current}",
            remedy=f"choose another name with --kernel, or delete {folder}",
        )
    write_atomic(file, json.dumps(_description(prefix, python, display_name), indent=1) + "\n")
    return Kernel(name.lower(), folder, current is not None)


def _python_of(file: Path) -> str | None:
    """The Python of a description; None where there is none."""
    try:
        text = file.read_text()
    except FileNotFoundError:
        return None
    try:
        arguments = json.loads(text)["argv"]
        return str(next(word for word in arguments if word.endswith(("python", "python3"))))
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return f"what {file} names"


def _description(prefix: Path, python: Path, display_name: str) -> dict[str, Any]:
    changes = activation.find(prefix, prefix)
    variables = {"CONDA_PREFIX": str(prefix), "CONDA_DEFAULT_ENV": str(prefix), **changes.set_}
    for name in (changes.prepend.keys() | changes.append.keys()) - {"PATH"}:
        # without what the user has: Jupyter leaves the name of a variable that is not set as it is
        variables[name] = ":".join([*changes.prepend.get(name, []), *changes.append.get(name, [])])
    variables = {name: value.replace("$", "$$") for name, value in variables.items()}
    before = [f"{prefix}/bin", *changes.prepend.get("PATH", [])]
    after = changes.append.get("PATH", [])
    path = [entry.replace("$", "$$") for entry in before]
    path += ["${PATH}", *(entry.replace("$", "$$") for entry in after)]
    variables["PATH"] = ":".join(path)
    without = [word for name in changes.unset for word in ("-u", name)]
    return {
        "argv": [
            *(["/usr/bin/env", *without] if without else []),
            str(python),
            "-m",
            "ipykernel_launcher",
            "-f",
            "{connection_file}",
        ],
        "display_name": display_name,
        "language": "python",
        "env": dict(sorted(variables.items())),
        "metadata": {"debugger": True},
    }
