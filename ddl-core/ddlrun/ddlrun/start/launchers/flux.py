"""Flux's `flux run` with its PMIx plug-in, inside an instance of Flux."""

import os
import re

from ...errors import Code, LaunchError
from ..launcher_messages import LauncherMessages, ProcessFailure
from .base import SchedulerLauncher, Start
from .srun import read_end

_FAILED = re.compile(r"(task|shell) rank (\d+) on host (\S+) failed and exit-on-error is set")
_SAID = re.compile(r"flux-job: task\(s\) (.+)")
_NO_PMIX = re.compile(r"pmi-pmix|pmi: unknown|pmi=pmix")


class FluxMessages(LauncherMessages):
    """Two lines belong together: which task failed, and how."""

    def read(self, line: str) -> bool:
        if match := _FAILED.search(line):
            is_rank = match[1] == "task"
            self.first = self.first or ProcessFailure(is_rank, int(match[2]), "FAILED", host=match[3])
            return True
        if (match := _SAID.search(line)) and self.first and self.first.is_rank:
            state, code = read_end(match[1])
            self.first = ProcessFailure(True, self.first.number, state, code=code, host=self.first.host)
            return True
        if _NO_PMIX.search(line):
            self.hint = "Flux needs its plug-in flux-pmix: have it installed, or leave -launcher flux out"
        return False


class Flux(SchedulerLauncher):
    name = "flux"
    job_variable = "FLUX_URI"
    job_remedy = "start ddlrun by flux alloc or flux batch"

    def line(self, start: Start) -> list[str]:
        if start.even is None:
            listed = ", ".join(f"{name}:{count}" for name, count in start.placed.counts.items())
            raise LaunchError(
                Code.NO_LAUNCHER,
                f"flux run gives every host the same number of ranks, and the job has {listed}",
                "in -launcher flux",
                "leave -launcher flux out, or give every host the same number of ranks",
            )
        counts = start.placed.counts
        command = ["flux", "run", "-N", str(len(counts)), "--tasks-per-node", str(start.even), "--exclusive"]
        command += ["--label-io", "-o", "pmi=pmix", "-o", "exit-on-error"]
        command += ["-o", f"cpu-affinity={'off' if start.placed.oversubscribed else 'per-task'}"]
        if start.options.wdir:
            command.append(f"--cwd={os.path.abspath(start.options.wdir)}")
        if not start.stdin_is_tty:
            command.append("--input=/dev/null")
        return [*command, f"--requires=host:{','.join(counts)}", *start.program_words()]

    def messages(self) -> LauncherMessages:
        return FluxMessages(launcher=self.name)
