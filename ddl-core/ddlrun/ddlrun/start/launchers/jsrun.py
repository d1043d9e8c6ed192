"""LSF's jsrun, inside a job of a system with IBM's Job Step Manager."""

import os
import re

from ...errors import Code, LaunchError
from ..launcher_messages import LauncherMessages, ProcessFailure
from .base import SchedulerLauncher, Start
from .cpus import of_cores

_SIGNALLED = re.compile(r"One or more process \(first noticed rank (\d+)\) terminated with signal (\d+)")


class JsrunMessages(LauncherMessages):
    def read(self, line: str) -> bool:
        if match := _SIGNALLED.search(line):
            code = 128 + int(match[2])
            self.first = self.first or ProcessFailure(True, int(match[1]), "ABORTED BY SIGNAL", code=code)
            return True
        return False


def resource_file(start: Start) -> str:
    """Every rank in a resource set of its own, for hosts with different numbers of ranks. jsrun counts CPUs
    as hwloc does: core by core.
    """
    lines = ["overlapping_rs: allow", "cpu_index_using: logical", ""]
    for slot in start.placed.slots:
        inventory = start.facts[slot.host]
        cpus_by_core = of_cores(inventory)
        threads = max(map(len, cpus_by_core.values()), default=1)
        cpus = [core * threads + i for core in sorted(slot.cores) for i in range(threads)]
        resources = f"hostname: {slot.host}; cpu: {{{','.join(map(str, cpus))}}}"
        if inventory.accelerators:
            resources += f"; gpu: {{0-{inventory.accelerators - 1}}}"
        lines.append(f"rank: {slot.rank}: {{ {resources} }}")
    return "\n".join([*lines, ""])


class Jsrun(SchedulerLauncher):
    name = "jsrun"
    job_variable = "LSB_JOBID"
    job_remedy = "start ddlrun in a script for bsub"

    def line(self, start: Start) -> list[str]:
        command = ["jsrun", "--exit_on_error", "1", "--stdio_mode", "prepended"]
        if start.even:
            hosts = len(start.placed.counts)
            command += ["--nrs", str(hosts), "--rs_per_host", "1", "--tasks_per_rs", str(start.even)]
            command += [
                "--cpu_per_rs",
                "ALL_CPUS",
                "--gpu_per_rs",
                "ALL_GPUS",
                "--launch_distribution",
                "packed",
            ]
            cores = len(start.placed.slots[0].cores)
            command += ["--bind", f"packed:{cores}" if start.placed.bound else "none"]
        elif start.placed.bound:
            command += ["--erf_input", str(start.write("RESOURCES", resource_file(start)))]
        else:
            raise LaunchError(
                Code.NO_LAUNCHER,
                f"jsrun needs the cores of hosts with different numbers of ranks: {start.placed.reason}",
                "in -launcher jsrun",
                "leave -launcher jsrun out, or give every host the same number of ranks",
            )
        if start.options.wdir:
            command += ["--chdir", os.path.abspath(start.options.wdir)]
        if not start.stdin_is_tty:
            command += ["--stdio_input", "/dev/null"]
        return [*command, *start.program_words()]

    def messages(self) -> LauncherMessages:
        return JsrunMessages(launcher=self.name)
