"""What leads to the other hosts of a job: ssh, or the remote shell of the scheduler around.

Schedulers often close hosts to ssh, or count and end only what came by their own shell. Inside a job of LSF
that is blaunch, inside one of PBS pbs_tmrsh; both reach the job's own hosts only.
"""

import os
import re
import shutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import Code, LaunchError
from .hosts.schedulers import lsf, pbs
from .ssh import Ssh

#: ssh, blaunch or pbs_tmrsh, whatever ddlrun would choose.
VARIABLE = "DDLRUN_REMOTE_SHELL"
_PROGRAM = Path(__file__).resolve().parent / "start/scheduler_shell.py"
# What mpirun, which cuts at blanks and colons, hands on as it is.
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=,./-]+")
_SCHEDULERS = {"blaunch": lsf.hosts, "pbs_tmrsh": pbs.hosts}


@dataclass(frozen=True)
class SchedulerShell:
    """A scheduler's own, in the form of ssh."""

    name: str
    python: str = sys.executable

    @property
    def _words(self) -> list[str]:
        return [self.python, "-I", "-S", str(_PROGRAM), self.name]

    @property
    def agent(self) -> str:
        """The same, for mpirun."""
        return " ".join(self._words)

    def command(self, host: str, remote: str) -> list[str]:
        """The line that lets /bin/sh of a host run a text."""
        return [*self._words, host, remote]


RemoteShell = Ssh | SchedulerShell


def choose(ssh: Ssh, names: Collection[str], environment: Mapping[str, str] = os.environ) -> RemoteShell:
    """The shell for these hosts. A port or key of ssh, hosts of no job, and launch nodes mean ssh.

    Raises LaunchError where the one that is asked for cannot be had.
    """
    choice = environment.get(VARIABLE)
    if choice not in (None, "", "ssh", *_SCHEDULERS):
        raise LaunchError(
            Code.USAGE,
            f"{choice!r} is none of ssh, {', '.join(_SCHEDULERS)}",
            f"in {VARIABLE}",
            "name one of these, or unset it",
            exit_code=2,
        )
    for name in _SCHEDULERS:
        if choice == name or (not choice and ssh == Ssh()):
            obstacle = _obstacle(name, names, environment)
            if not obstacle:
                return SchedulerShell(name)
            if choice:
                raise LaunchError(
                    Code.NO_LAUNCHER, f"{name} cannot be used: {obstacle}", f"in {VARIABLE}", "unset it"
                )
    return ssh


def _obstacle(name: str, names: Collection[str], environment: Mapping[str, str]) -> str | None:
    """Why a scheduler's shell does not reach these hosts; None: it does."""
    hosts = _SCHEDULERS[name](environment)
    if hosts is None:
        return "no job of its scheduler is around"
    if shutil.which(name, path=environment.get("PATH")) is None:
        return "it was not found on PATH"
    if name == "blaunch" and lsf.has_launch_nodes(environment):
        return "ranks are started by jsrun here"
    strangers = sorted(set(names) - {host.name for host in hosts.hosts})
    if strangers:
        return f"host {strangers[0]} does not belong to the job"
    if not all(map(_PLAIN.fullmatch, (sys.executable, str(_PROGRAM)))):
        return f"mpirun cannot hand on the path {_PROGRAM}"
    return None
