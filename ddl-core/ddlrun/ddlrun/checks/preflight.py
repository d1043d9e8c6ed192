"""Looking at the hosts before the start: all at once, each within a limit, each finding with host and remedy.

Every host is asked in the same way; the others are reached by ssh exactly as mpirun will reach them.
"""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..environment import Environment
from ..errors import Code, LaunchError
from ..hosts.host_list import HostList
from ..image import OPTIONS_VARIABLE
from ..plain_text import plain
from ..processes import run_bounded
from ..ssh import CONNECT_SECONDS
from . import probe
from .diagnostics import compare
from .inventory import HostInventory, parse
from .refusals import NotAsked, no_way_in, shell_refusal, ssh_refusal
from .remote_probe import (
    PEERS,
    ProbeSettings,
    local_script,
    places,
    read_answer,
    remote_command,
    step_command,
)

Log = Callable[[str], None]

HOST_SECONDS = 12.0
# A host that is down is told from one that is slow by ssh's own limit, which this exceeds.
LEAST_HOST_SECONDS = CONNECT_SECONDS + 0.5
_PARALLEL = 64


@dataclass(frozen=True)
class Inspection:
    """How hosts are looked at.

    Attributes:
        settings: What the ranks will have.
        by_step: By a step of the Slurm job around, which has all the hosts.
        seconds: The time of each host.
        heard: Called with a host's name when it is done, from any thread.
    """

    settings: ProbeSettings = field(default_factory=ProbeSettings)
    by_step: bool = False
    seconds: float = HOST_SECONDS
    heard: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class Report:
    """What the checks found: facts of the hosts that answered, and by host what forbids it to take part.
    seconds: how long all of it took.
    """

    facts: dict[str, HostInventory]
    failed: dict[str, LaunchError]
    seconds: float = 0.0


def local_facts(environment: Environment, run: bool = True, gpus: bool = True) -> HostInventory:
    """This machine's, quickly: its files are looked at, nothing is loaded. run: ask mpirun its version. gpus:
    look at these too.
    """
    prefix, package, mpirun = places(environment)
    return parse(probe.facts(prefix, package, mpirun if run else None, gpus=gpus))


def _source() -> str:
    """The probe's text, as it is sent to a host: alone there, it has the part on GPUs with it."""
    text = Path(probe.__file__)
    return f"GPU_PROBE = {text.with_name('gpu_probe.py').read_text()!r}\n{text.read_text()}"


class _Examiner:
    """Asks hosts for their facts."""

    def __init__(
        self,
        hosts: HostList,
        local: set[str],
        environment: Environment,
        log: Log,
        inspection: Inspection,
    ) -> None:
        self._local, self._environment, self._log = local, environment, log
        self._shell, self._seconds = environment.remote_shell.name, inspection.seconds
        self._settings = inspection.settings
        hostname = socket.gethostname()
        self._peers = [hostname if host.name in local else host.name for host in hosts.hosts]
        self._source = _source()
        self._said: dict[str, tuple[Any, float, float]] = {}

    def ask_by_step(self, names: Sequence[str]) -> None:
        """Ask hosts by one step of Slurm; those that do not answer are asked one by one later."""
        nonce = os.urandom(8).hex()
        command = step_command(names, self._environment, nonce, self._peers, self._settings)
        # The step's task is no rank of this start.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SLURM_NTASKS_PER")
        }
        sent = time.time()
        try:
            done = run_bounded(command, self._source, self._seconds, environment)
            output, code = done.stdout, str(done.returncode)
            errors = done.stderr
        except (OSError, subprocess.TimeoutExpired) as error:
            output, code, errors = "", type(error).__name__, str(error)
        received = time.time()
        for name in names:
            with contextlib.suppress(ValueError):
                self._said[name] = (read_answer(output, f"{name}.{nonce}"), sent, received)
        self._log(
            f"preflight by srun: {len(self._said)} of {len(names)} hosts answered; {code}; {errors[-1000:]!r}"
        )

    def __call__(self, name: str) -> HostInventory | LaunchError:
        start_time = time.monotonic()
        try:
            inventory = self._ask(name)
        except LaunchError as error:
            return error
        except (OSError, ValueError) as error:
            return LaunchError(
                Code.ENVIRONMENT,
                f"the check failed: {error}",
                f"host {name}",
                "-skip-checks starts without it",
            )
        return replace(inventory, seconds=time.monotonic() - start_time)

    def _command(self, name: str, nonce: str) -> list[str]:
        hostname = socket.gethostname() if name in self._local else name
        peers = [peer for peer in self._peers if peer != hostname][:PEERS]
        if name in self._local:
            script = local_script(self._environment, nonce, peers, self._settings)
            return ["/bin/sh", "-c", script]
        return remote_command(name, self._environment, nonce, peers, self._settings)

    def _ask(self, name: str) -> HostInventory:
        if name in self._said:
            return self._facts(name, *self._said[name])
        nonce = os.urandom(8).hex()
        where = f"host {name}"
        sent = time.time()
        try:
            done = run_bounded(self._command(name, nonce), self._source, self._seconds)
        except subprocess.TimeoutExpired:
            raise LaunchError(
                Code.UNREACHABLE,
                f"it did not answer within {self._seconds:g} s",
                where,
                f"check that the host is up and that `{self._shell} {name} true` ends at once",
            ) from None
        received = time.time()
        self._log(
            f"preflight {name}: code {done.returncode}; "
            f"{done.stdout.strip()[-4000:]!r} {done.stderr.strip()[-1000:]!r}"
        )
        try:
            answer = read_answer(done.stdout, nonce)
        except ValueError:
            # the program that enters images ends with ssh's own code
            entered = self._environment.image is not None and "FATAL" in done.stderr
            if name not in self._local and self._shell != "ssh":
                raise shell_refusal(name, self._shell, done.stderr, done.returncode) from None
            if done.returncode == 255 and name not in self._local and not entered:
                raise ssh_refusal(name, done.stderr, done.returncode) from None
            last = plain((done.stderr or done.stdout).strip()[-300:], 300)
            if self._environment.image and name not in self._local:
                raise LaunchError(
                    Code.IMAGE,
                    f"the image cannot be entered there: {last}",
                    where,
                    f"log in there and try `{shlex.join(self._environment.image.exec_command())} true`; "
                    f"other options can be given in {OPTIONS_VARIABLE}",
                ) from None
            raise LaunchError(
                Code.ENVIRONMENT,
                f"the environment's Python does not run there: {last}",
                where,
                f"check {self._environment.python} on that host (machine type, glibc, mounts)",
            ) from None
        if self._environment.image and isinstance(answer, str):
            raise no_way_in(self._environment.image, answer, where)
        return self._facts(name, answer, sent, received)

    def _facts(self, name: str, answer: Any, sent: float, received: float) -> HostInventory:
        where = f"host {name}"
        if answer is None:
            raise LaunchError(
                Code.ENVIRONMENT,
                f"there is no environment {self._environment.prefix}",
                where,
                "install the environment at the same path, or put it on a shared file system",
            )
        return replace(parse(answer), clock_s=_ahead(answer.get("clock"), sent, received))


def _ahead(clock: object, sent: float, received: float) -> float:
    """Seconds that a clock, read between the two times, is at least ahead of ours; negative: behind."""
    if not isinstance(clock, int | float):
        return 0.0
    return clock - received if clock > received else min(0.0, clock - sent)


class _Closed:
    """Whether hosts are closed to ssh altogether, as in many clusters, or behind a switch that is down. To
    find that out of a thousand hosts one by one would take minutes.
    """

    def __init__(self) -> None:
        self._refused = self._reached = 0
        self._changed = threading.Condition()

    def to_all(self) -> bool:
        """Whether so many have refused, and none has answered. Waits until one or the other is known."""
        with self._changed:
            self._changed.wait_for(lambda: self._reached or self._refused >= _PARALLEL)
            return self._reached == 0

    def note(self, answer: HostInventory | LaunchError) -> None:
        """What asking a host has brought."""
        with self._changed:
            if isinstance(answer, LaunchError) and answer.code in (Code.UNREACHABLE, Code.REFUSED):
                self._refused += 1
            else:
                self._reached += 1
            self._changed.notify_all()


def _spread(names: Sequence[str]) -> list[str]:
    """The names in another order: the first to be asked are from all over the list, not of one rack that is
    down."""
    step = max(1, -(-len(names) // _PARALLEL))
    return [name for first in range(step) for name in names[first::step]]


def look_at(
    hosts: HostList,
    local: set[str],
    environment: Environment,
    log: Log,
    inspection: Inspection | None = None,
) -> Report:
    """Look at all hosts, and at this machine, at once. Raises LaunchError where this machine itself cannot
    start anything.
    """
    start_time = time.monotonic()
    inspection = inspection or Inspection()
    remote = [host.name for host in hosts.hosts if host.name not in local]
    shell = environment.remote_shell.name
    if remote and not inspection.by_step and shell == "ssh" and shutil.which("ssh") is None:
        raise LaunchError(
            Code.UNREACHABLE, "ssh was not found on PATH", f"host {remote[0]}", "install an OpenSSH client"
        )
    this_host = next((host.name for host in hosts.hosts if host.name in local), socket.gethostname())
    examiner = _Examiner(hosts, local | {this_host}, environment, log, inspection)
    if inspection.by_step and remote:
        examiner.ask_by_step(remote)
    answers = _ask_all(examiner, this_host, remote, shell, inspection.heard)
    facts, failed = _compared(answers, this_host, takes_part=this_host in local)
    # mpirun's daemons would go the way that the checks went
    only_way = shell != "ssh" or (environment.image is not None and shutil.which("srun") is None)
    if not hosts.explicit_slots and not only_way:
        # A scheduler's hosts may be closed to ssh and yet fit: mpirun starts there by the scheduler's own
        # means.
        for name, reason in list(failed.items()):
            if reason.code in (Code.UNREACHABLE, Code.REFUSED):
                log(f"left to the scheduler: {reason}")
                del failed[name]
    order = [host.name for host in hosts.hosts]
    return Report(
        {name: facts[name] for name in order if name in facts},
        {name: failed[name] for name in order if name in failed},
        time.monotonic() - start_time,
    )


def _ask_all(
    examiner: _Examiner, this_host: str, remote: Sequence[str], shell: str, heard: Callable[[str], None]
) -> dict[str, HostInventory | LaunchError]:
    """The answers of this host and of the others, which are asked beside each other."""
    closed = _Closed()
    queue = [this_host, *_spread(remote)]
    later = set(queue[1 + _PARALLEL :])

    def examine(name: str) -> HostInventory | LaunchError:
        if name in later and closed.to_all():
            return NotAsked(name, _PARALLEL, shell)
        answer = examiner(name)
        if name != this_host:
            closed.note(answer)
        heard(name)
        return answer

    if not remote:
        return {this_host: examine(this_host)}
    from concurrent.futures import ThreadPoolExecutor  # brings logging with it: not for a single host

    try:
        with ThreadPoolExecutor(min(_PARALLEL, 1 + len(remote))) as pool:
            return dict(zip(queue, pool.map(examine, queue), strict=True))
    except RuntimeError as error:
        raise LaunchError(
            Code.ENVIRONMENT,
            f"the hosts cannot be looked at: {error}",
            "on this machine",
            "raise its limit of processes (ulimit -u), or start with -skip-checks",
        ) from error


def _compared(
    answers: Mapping[str, HostInventory | LaunchError], this_host: str, *, takes_part: bool
) -> tuple[dict[str, HostInventory], dict[str, LaunchError]]:
    """Facts, and what forbids hosts to take part: no answer, or another environment than this machine's.
    Raises LaunchError where this machine does not take part and cannot start anything.
    """
    own_answer = answers[this_host]
    if isinstance(own_answer, LaunchError) and not takes_part:
        raise own_answer
    facts, failed = {}, {}
    for name, answer in answers.items():
        try:
            if isinstance(answer, LaunchError):
                raise answer
            facts[name] = answer
            if answer.folder_problem:
                raise LaunchError(
                    Code.FOLDER,
                    f"the ranks cannot start in the folder of -wdir: {answer.folder_problem}",
                    f"host {name}",
                    "name a folder that all hosts have",
                )
            compare(name, answer, answer if isinstance(own_answer, LaunchError) else own_answer)
        except LaunchError as error:
            if name == this_host and not takes_part:
                raise
            failed[name] = error
    return facts, failed | _named_twice(facts, this_host if not takes_part else None)


def _named_twice(facts: Mapping[str, HostInventory], spectator: str | None) -> dict[str, LaunchError]:
    """Names of a host that is already there by another one: its ranks would share GPUs and cores without
    knowing. spectator: this machine, where it has no rank."""
    failed: dict[str, LaunchError] = {}
    first: dict[str, str] = {}
    for name, inventory in facts.items():
        if name == spectator or not inventory.identity:
            continue
        other = first.setdefault(inventory.identity, name)
        if other != name:
            failed[name] = LaunchError(
                Code.HOSTS,
                f"{other} and {name} are the same host, {inventory.name}",
                "in the list of hosts",
                f"name it once, with all its ranks: -H {other}:2",
            )
    return failed
