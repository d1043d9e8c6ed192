"""Runs the check of a component, on ranks where it is distributed, and tells the result in one line."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from wml_ce_commands.checks import MARK
from wml_ce_commands.components import TESTS

_LIMIT_S = 300
_LAST_LINES = 15
_SCHEDULERS = ("SLURM_", "LSB_", "PBS_", "FLUX_")
"""Begin what a scheduler sets in its jobs. The ranks start on this host, whatever the job around has."""
_SETTINGS = ("DDL_AUTO_INIT", "DDL_OPTIONS", "DDL_TF1", "TF_USE_LEGACY_KERAS")
"""Settings of a job's program: when DDL starts, its topology, TensorFlow 1, Keras 2. They break a check."""


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def _run(command: Sequence[str]) -> tuple[int | None, str]:
    """The exit status, None after the limit, and everything that was printed."""
    outside = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_SCHEDULERS) and name not in _SETTINGS
    }
    process = subprocess.Popen(
        command,
        # KERAS_BACKEND is set, not removed: ~/.keras/keras.json may name another backend, too.
        env={"TF_CPP_MIN_LOG_LEVEL": "3", **outside, "KERAS_BACKEND": "tensorflow"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=_LIMIT_S)
        return process.returncode, output
    except subprocess.TimeoutExpired as late:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        read = late.stdout or b""
        return None, read.decode(errors="replace") if isinstance(read, bytes) else read
    except BaseException:  # the user's interrupt, which reaches this process alone
        os.killpg(process.pid, signal.SIGTERM)
        raise


def test(component: str, arguments: Sequence[str]) -> int:
    """Does what `<component>-test` is asked for.

    Returns:
        The exit status.
    """
    name = f"{component}-test"
    check = TESTS[component]
    parser = argparse.ArgumentParser(
        prog=name, description=f"Checks {component} by a small computation on {check.ranks} rank(s)."
    )
    parser.parse_args(arguments)
    for module, package in check.modules.items():
        if not _is_there(module):
            print(
                f"{name}: failed: {sys.prefix} has no Python module {module}: install the package {package}"
            )
            return 1
    # -P: no module of the folder in which the user is
    command = [sys.executable, "-P", "-m", "wml_ce_commands.checks", component, str(check.ranks)]
    if check.ranks > 1:
        ddlrun = str(Path(sys.prefix) / "bin/ddlrun")
        command = [ddlrun, "-q", "-np", str(check.ranks), "-timeout", str(_LIMIT_S - 30), *command]
    status, output = _run(command)
    results = [line.removeprefix(MARK) for line in output.splitlines() if line.startswith(MARK)]
    if status == 0 and len(results) == 1:
        print(f"{name}: passed: {results[0]}")
        return 0
    reason = f"not finished after {_LIMIT_S} s" if status is None else f"exit status {status}"
    print("\n".join(output.splitlines()[-_LAST_LINES:]), file=sys.stderr)
    print(f"{name}: failed: {reason}; its last lines are on stderr")
    return 1
