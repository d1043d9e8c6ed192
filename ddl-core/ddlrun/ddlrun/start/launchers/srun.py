"""Slurm's srun with its PMIx plug-in, inside a job."""

import os
import re
import signal
from collections.abc import Callable, Mapping

from ...errors import Code, LaunchError
from ...hosts.host_list import HostList
from ...hosts.schedulers import slurm
from ...hosts.schedulers.ask import ask
from ..launcher_messages import LauncherMessages, ProcessFailure
from .base import SchedulerLauncher, Splitter, Start
from .cpus import by_local_rank, of_cores
from .labels import LabelSplitter

# Of the job around; srun would take them for options of the step.
_STEP_OPTIONS = re.compile(
    r"SLURM_(NTASKS_PER_\w+|DISTRIBUTION|CPU_BIND\w*|HOSTFILE|CPUS_PER_TASK|TRES_PER_TASK|LABELIO|STDINMODE|"
    r"STDOUTMODE|STDERRMODE|EXCLUSIVE|EXACT|OVERCOMMIT|WAIT|MPI_TYPE|EXPORT_ENV|THREADS_PER_CORE|HINT)"
    r"|SRUN_CPUS_PER_TASK"
)
_DAEMON = re.compile(rb"slurmstepd(-\S+)?: ")
_ENDED = re.compile(r"srun: error: (\S+): tasks? (\d+)[\d,-]*: (.+)")
_LOST = re.compile(r"srun: error: Node failure on (\S+)")
# srun ends with code 0 when no task of a step could be launched.
_NOT_BEGUN = re.compile(
    r"srun: error: (Task launch for|task \d+ launch failed|Application launch failed|Unable to create step)"
)
_NO_PMIX = re.compile(r"can not load PMIx library|Invalid MPI type 'pmix'|mpi/pmix\S*: .*init")
_NOISE = re.compile(
    r"slurmstepd(-\S+)?: error: \*\*\* STEP|srun: (Force Terminated|Terminating|Job step aborted|"
    r"launch/slurm: \w+: Terminating|got SIG|forcing job termination)|srun: error: .*Terminated$"
)
_SIGNALS = {(signal.strsignal(number) or "").lower(): number for number in signal.valid_signals()}


def read_end(text: str) -> tuple[str, int]:
    """State and exit code from what srun says of a task: `Exited with exit code 3`, `Segmentation fault`."""
    if match := re.search(r"[Ee]xit code (\d+)", text):
        return "EXITED WITH NON-ZERO", int(match[1])
    bare = text.removesuffix(" (core dumped)").strip().lower()
    if "out of memory" in bare or "out-of-memory" in bare:
        return "OUT OF MEMORY", 128 + signal.SIGKILL
    if bare in _SIGNALS:
        return "ABORTED BY SIGNAL", 128 + _SIGNALS[bare]
    return text.strip().upper(), 1


class SrunMessages(LauncherMessages):
    def read(self, line: str) -> bool:
        if match := _ENDED.match(line):
            if self.first is None:
                state, code = read_end(match[3])
                self.first = ProcessFailure(True, int(match[2]), state, code=code, host=match[1])
            return True
        if _NOT_BEGUN.search(line):
            self.first = self.first or ProcessFailure(True, 0, "FAILED TO START")
            self.hint = (
                self.hint or "the log of slurmd on the host tells why (scontrol show config: SlurmdLogFile)"
            )
            return False
        if match := _LOST.match(line):
            self.first = self.first or ProcessFailure(False, 0, "NODE FAILURE", host=match[1])
            return True
        if _NO_PMIX.search(line):
            self.hint = "this Slurm has no working PMIx: leave -launcher srun out, or have libpmix installed"
        return _NOISE.search(line) is not None


class Srun(SchedulerLauncher):
    name = "srun"
    # At SIGTERM it kills the step.
    kills_at_once = True
    job_variable = "SLURM_JOB_ID"
    job_remedy = "start ddlrun by salloc or sbatch"

    def check(self, hosts: HostList, environment: Mapping[str, str] = os.environ) -> None:
        super().check(hosts, environment)
        of_job = slurm.hosts(environment)
        names = {host.name for host in of_job.hosts} if of_job else set()
        strangers = [host.name for host in hosts.hosts if host.name not in names and host.name != "localhost"]
        if strangers:
            raise LaunchError(
                Code.NO_LAUNCHER,
                f"host {strangers[0]} does not belong to Slurm job {environment[self.job_variable]}",
                f"in {hosts.origin}",
                "name hosts of the job, or none",
            )

    def line(self, start: Start) -> list[str]:
        counts = start.placed.counts
        command = ["srun", "--mpi=pmix", "--export=ALL", "--label", "--kill-on-bad-exit=1"]
        # The step that ddlrun itself may run in holds the job's CPUs, and srun would wait for its end.
        command += ["--overlap", f"--job-name={start.variables.get('DDLRUN_JOB', self.name)}"]
        command += ["-N", str(len(counts)), "-n", str(len(start.placed.slots))]
        if start.even and self._in_order(start):
            command += ["--ntasks-per-node", str(start.even), "--distribution=block"]
            if list(counts) != list(self._cpus()):
                command.append(f"--nodelist={','.join(counts)}")
        else:
            listed = start.write("SLOTS", "".join(f"{slot.host}\n" for slot in start.placed.slots))
            command += ["--distribution=arbitrary", f"--nodelist={listed}"]
        command += self._binding(start)
        if start.options.wdir:
            command += ["--chdir", os.path.abspath(start.options.wdir)]
        command.append("--input=0" if start.stdin_is_tty else "--input=none")
        return [*command, *start.program_words()]

    def variables(self, start: Start) -> dict[str, str]:
        every = super().variables(start)
        kept_variables = {name: value for name, value in every.items() if not _STEP_OPTIONS.fullmatch(name)}
        # Slurm's PMIx offers munge first, which the environment's has not, and every rank would say so.
        kept_variables.setdefault("PMIX_MCA_psec", "native")
        return kept_variables

    def splitter(self, pid: int) -> Splitter:
        return LabelSplitter(own_label=_DAEMON)

    def messages(self) -> LauncherMessages:
        return SrunMessages(launcher=self.name)

    def ask_ranks(self, variables: Mapping[str, str], log: Callable[[str], None]) -> bool:
        job = variables.get(self.job_variable, "")
        listed, problem = ask(["squeue", "--steps", "-h", "-j", job, "-o", "%i %j"], variables)
        name = variables["DDLRUN_JOB"]
        steps = [line.split() for line in (listed or "").splitlines()]
        for step in [fields[0] for fields in steps if fields[1:] == [name]]:
            sent, problem = ask(["scancel", "--signal=TERM", step], variables)
            if sent is not None:
                log(f"sent SIGTERM to step {step}")
                return True
        log(f"the step cannot be signalled: {problem or f'{listed!r} does not list it'}")
        return False

    # ---- inside

    def _cpus(self) -> dict[str, int]:
        """CPUs of the job on each of its hosts, in Slurm's order."""
        names = slurm.expand_nodelist(os.environ.get("SLURM_JOB_NODELIST", ""))
        cpus = slurm.expand_tasks(os.environ.get("SLURM_JOB_CPUS_PER_NODE", "1"), "SLURM_JOB_CPUS_PER_NODE")
        return dict(zip(names, cpus if len(cpus) == len(names) else [1] * len(names), strict=True))

    def _in_order(self, start: Start) -> bool:
        order = list(self._cpus())
        used = list(start.placed.counts)
        return used == [name for name in order if name in used]

    def _binding(self, start: Start) -> list[str]:
        cpus = self._cpus()
        share = min(cpus.get(host, 1) // count for host, count in start.placed.counts.items())
        if share == 0:
            return ["--overcommit", "--cpu-bind=none"]
        if start.placed.oversubscribed:
            return ["--cpu-bind=none"]
        masks = [
            hex(sum(1 << cpu for cpu in rank_cpus)) for rank_cpus in by_local_rank(start.placed, start.facts)
        ]
        # Where others have a part of a host, only Slurm knows which CPUs are the job's.
        if masks and all(
            cpus.get(host, 0) >= sum(map(len, of_cores(start.facts[host]).values()))
            for host in start.placed.counts
        ):
            return [f"--cpu-bind=mask_cpu:{','.join(masks)}"]
        return ["--cpus-per-task", str(share), "--cpu-bind=cores"]
