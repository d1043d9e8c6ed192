"""Stands in for the remote shells of schedulers that cannot run here. A host is reached by the emulated
cluster's ssh, HERE is this one. Words go through shells or not, and input and output come and go, as with the
real ones.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence

HERE = "here"
_SSH = ("/usr/bin/ssh", "-T", "-o", "BatchMode=yes")


def _record(name: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
    if "STANDIN_RECORD" in environment:
        with open(environment["STANDIN_RECORD"], "a") as file:
            file.write(f"{name} {shlex.join(words)}\n")


def _line(host: str, text: str) -> list[str]:
    """The command that lets a shell of the host run a text."""
    return ["/bin/sh", "-c", text] if host == HERE else [*_SSH, host, text]


def blaunch(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """blaunch [-n] HOST COMMAND…; its site's setting is that a shell reads the words, or that none does."""
    _record("blaunch", words, environment)
    host, *command = words
    if not environment.get("LSB_JOBID"):
        return 255
    text = " ".join(command) if environment.get("STANDIN_SHELL") else shlex.join(command)
    return subprocess.run(_line(host, text), check=False).returncode


def pbs_tmrsh(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """pbs_tmrsh HOST COMMAND…: executed as it is, nothing to read, output to the job's file."""
    _record("pbs_tmrsh", words, environment)
    host, *command = words
    if not (environment.get("PBS_JOBID") and environment.get("PBS_ENVIRONMENT")):
        return 255
    with open(environment["PBS_NODEFILE"]) as file:
        if host not in file.read().split() and host != HERE:
            return 255
    with open(environment["STANDIN_JOB_OUTPUT"], "ab") as output:
        return subprocess.run(
            _line(host, shlex.join(command)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        ).returncode
