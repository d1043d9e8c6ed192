"""A virtual environment over a read-only environment: what pip installs lies in it, all else comes from
below.

Uses only the standard library: it also runs inside installed environments.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from wmlce.envs.clone import check_target
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, remove_tree

_LIMIT_S = 300.0
_OWN = re.compile(r"^(python.*|activate.*|deactivate|Activate\.ps1|pydoc.*|2to3.*|idle.*)$")


def overlay(base: Path, target: Path, *, say: Callable[[str], None]) -> int:
    """Make a virtual environment at `target` over `base`; returns how many of its programs it offers.

    Scripts of the environment below are repeated, so that `ddlrun`, `pip` and the others run with the
    overlay's Python and see what is installed in it; other programs are linked.
    """
    base, target = Path(os.path.abspath(base)), Path(os.path.abspath(target))
    python = base / "bin" / "python3"
    if not os.access(python, os.X_OK):
        raise WmlceError(
            f"{base} has no bin/python3 to put an overlay on",
            remedy="name the prefix of an environment that holds python",
        )
    check_target(target)
    if target.exists() or target.is_symlink():
        raise WmlceError(f"{target} exists already", remedy="remove it first, or choose another name")
    say(f"making an overlay of {base}")
    try:
        with disk_errors(f"making the overlay {target}"):
            target.parent.mkdir(parents=True, exist_ok=True)
            _make(python, target)
            return _repeat_programs(base / "bin", target / "bin")
    except BaseException:
        # its scripts name its own place, so it is made there; only a whole one stays
        remove_tree(target)
        raise


def _make(python: Path, target: Path) -> None:
    command = [str(python), "-I", "-m", "venv", "--system-site-packages", "--without-pip", str(target)]
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise WmlceError(
            f"making the virtual environment {target}: did not finish within {_LIMIT_S:.0f} s",
            remedy="try it on a faster file system",
        ) from error
    if answer.returncode != 0:
        raise WmlceError(
            f"the virtual environment {target} could not be made",
            detail=(answer.stdout + answer.stderr).splitlines()[-5:],
            remedy=f"run by hand to see more: {' '.join(command)}",
        )


def _repeat_programs(below: Path, folder: Path) -> int:
    # rattler writes /prefix/bin/python, pip and people also write python3 and python3.11
    interpreter = re.compile(re.escape(os.fsencode(below)) + rb"/(python[0-9.]*)(?=[\s\"'])")
    count = 0
    for program in sorted(below.iterdir()):
        place = folder / program.name
        if _OWN.match(program.name) or place.exists() or not os.access(program, os.X_OK):
            continue
        if not program.is_file():
            continue
        count += 1
        with program.open("rb") as opened:
            head = opened.read(4096)
        lines = head.split(b"\n", 8)[:8]
        # by its first line, or by a shell's line that hands the file to the Python beside it
        for_python = head.startswith(b"#!") and any(b"python" in line for line in lines)
        if for_python and not program.is_symlink():
            text = interpreter.sub(
                lambda match: os.fsencode(folder) + b"/" + match.group(1), program.read_bytes()
            )
            place.write_bytes(text)
            os.chmod(place, 0o755)
        else:
            place.symlink_to(program)
    return count
