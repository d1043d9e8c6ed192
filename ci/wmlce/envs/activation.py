"""What activating an environment changes, found out by activating it: the packages' own scripts run once,
when the module is installed, and the module repeats their result.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wmlce.util.errors import WmlceError

_LIMIT_S = 120.0
_SHELL_OWN = {"_", "SHLVL", "PWD", "OLDPWD", "BASH_FUNC_which%%"}
_UNSET = re.compile(r"\bunset\s+(?:-v\s+)?([A-Za-z0-9_ ]+)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCRIPT = r"""
env -0 >"$1"
for script in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do
  [ -e "$script" ] || continue
  . "$script" || { echo "$script: exit code $?" >&2; exit 3; }
done
env -0 >"$2"
"""
_PATHS = (
    "PATH",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "CPATH",
    "MANPATH",
    "INFOPATH",
    "PKG_CONFIG_PATH",
    "CMAKE_PREFIX_PATH",
    "ACLOCAL_PATH",
    "XDG_DATA_DIRS",
)


@dataclass(frozen=True)
class Activation:
    """set_: variables and their values. prepend, append: lists of paths that get entries. unset: gone."""

    set_: dict[str, str] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)
    prepend: dict[str, list[str]] = field(default_factory=dict)
    append: dict[str, list[str]] = field(default_factory=dict)


def find(prefix: Path, final: Path) -> Activation:
    """The changes by the environment at `prefix`, in words that hold when it lies at `final`."""
    users = [
        {"HOME": "/nonexistent/one", "USER": "one", "LOGNAME": "one"},
        {"HOME": "/nonexistent/two", "USER": "two", "LOGNAME": "two"},
    ]
    first, second = (_changes(prefix, final, user) for user in users)
    differing = sorted(
        name for name in first.keys() | second.keys() if first.get(name, "") != second.get(name, "")
    )
    if differing:
        raise WmlceError(
            f"activation scripts of {prefix} give every user another value: {', '.join(differing)}",
            remedy="fix the package's script in etc/conda/activate.d: a module sets one value for all users",
        )
    set_: dict[str, str] = {}
    unset = _unset(prefix, final, users[0])
    prepend: dict[str, list[str]] = {}
    append: dict[str, list[str]] = {}
    for name, value in first.items():
        if value is None or name in unset:
            continue
        if name in _PATHS and (entries := value.split(":")) and _sentinel(name) in entries:
            if name == "PATH":
                # the environment's programs are there in any case, and the rest is the probe's own
                entries = [entry for entry in entries if entry not in (f"{final}/bin", "/bin")]
            at = entries.index(_sentinel(name))
            prepend[name] = [entry for entry in entries[:at] if entry]
            append[name] = [entry for entry in entries[at + 1 :] if entry]
        elif name == "PYTHONPATH":
            # a list like those, but what the user has in it is for another Python; Python takes an empty
            # entry for the current folder
            set_[name] = ":".join(filter(None, value.split(":")))
        else:
            set_[name] = value
    return Activation(
        set_, unset, {k: v for k, v in prepend.items() if v}, {k: v for k, v in append.items() if v}
    )


def _unset(prefix: Path, final: Path, user: Mapping[str, str]) -> list[str]:
    """Variables that scripts take away from users who have them."""
    text = "\n".join(
        script.read_text(errors="replace")
        for script in sorted((prefix / "etc/conda/activate.d").glob("*.sh"))
    )
    named = {name for names in _UNSET.findall(text) for name in names.split()}
    had = {name: "/nonexistent/value-of-the-user" for name in sorted(named) if _NAME.fullmatch(name)}
    changes = _changes(prefix, final, {**user, **had})
    return [name for name in had if name in changes and changes[name] is None]


def _sentinel(name: str) -> str:
    """Stands for what the user has in a list of paths; scripts put their entries before or behind it."""
    return "/usr/bin" if name == "PATH" else "/nonexistent/list-of-the-user"


def _changes(prefix: Path, final: Path, user: Mapping[str, str]) -> dict[str, str | None]:
    declared = _declared(prefix)
    start = {
        **user,
        "LANG": "C.UTF-8",
        **{name: _sentinel(name) for name in _PATHS},
        "PATH": f"{prefix}/bin:/usr/bin:/bin",
        "CONDA_PREFIX": str(prefix),
        "CONDA_DEFAULT_ENV": str(prefix),
        "CONDA_SHLVL": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before", Path(folder) / "after"
        try:
            answer = subprocess.run(
                ["bash", "--noprofile", "--norc", "-c", _SCRIPT, "activate", str(before), str(after)],
                env={**start, **declared},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise WmlceError(
                f"the activation scripts of {prefix} did not end within {_LIMIT_S:.0f} s",
                remedy="run them by hand in a shell (etc/conda/activate.d) and fix the one that waits",
            ) from error
        if answer.returncode != 0 or not after.exists():
            raise WmlceError(
                f"the activation scripts of {prefix} failed",
                detail=answer.stderr.splitlines()[-5:],
                remedy="fix the package whose script in etc/conda/activate.d is named above",
            )
        was, now = _parsed(before), _parsed(after)
    changes: dict[str, str | None] = {name: value for name, value in declared.items() if name in now}
    for name in sorted(was.keys() | now.keys()):
        if name not in _SHELL_OWN and not name.startswith("CONDA_BACKUP_") and was.get(name) != now.get(name):
            changes[name] = now.get(name)
    return {
        name: value.replace(str(prefix), str(final)) if value is not None else None
        for name, value in changes.items()
    }


def _declared(prefix: Path) -> dict[str, str]:
    """Variables that packages (env_vars.d) and `conda env config vars` (conda-meta/state) declare."""
    sources = [*sorted((prefix / "etc/conda/env_vars.d").glob("*.json")), prefix / "conda-meta/state"]
    variables: dict[str, str] = {}
    for file in sources:
        if not file.is_file():
            continue
        try:
            content: Any = json.loads(file.read_text())
            values = content.get("env_vars", {}) if file.name == "state" else content
            variables.update({str(name): str(value) for name, value in values.items()})
        except (OSError, ValueError, AttributeError) as error:
            raise WmlceError(
                f"{file} is not a JSON object of variables", detail=[str(error)], remedy="fix its package"
            ) from error
    # conda's word for a variable that `conda env config vars unset` took away
    return {name: value for name, value in variables.items() if value != "***unset***"}


def _parsed(file: Path) -> dict[str, str]:
    pairs = (os.fsdecode(entry).partition("=") for entry in file.read_bytes().split(b"\0") if entry)
    return {name: value for name, _, value in pairs if not name.startswith("BASH_FUNC_")}
