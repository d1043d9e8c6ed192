"""Looking at the hosts before the start: all at once, each within a limit, each finding with host and remedy.

Every host is asked in the same way; the others are reached by ssh exactly as mpirun will reach them.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import probe
from .environment import Environment
from .errors import Code, LaunchError
from .facts import Facts, parse, plain
from .findings import compare
from .hosts import Host, HostList, merged
from .image import OPTIONS_VARIABLE, PROGRAM_VARIABLE, Image

Log = Callable[[str], None]

HOST_SECONDS = 13.0
_RESOLVE_SECONDS = 5.0
_PARALLEL = 64
#: So many other hosts each one is asked the way to.
_PEERS = 3
_NO_IMAGE, _NO_PROGRAM = '"image"', '"program"'


@dataclass(frozen=True)
class Report:
    """What the checks found: facts of the hosts that answered, and by host what forbids it to take part.
    seconds: how long all of it took.
    """

    facts: dict[str, Facts]
    failed: dict[str, LaunchError]
    seconds: float = 0.0


def local_facts(environment: Environment, run: bool = True) -> Facts:
    """This machine's, quickly: its files are looked at, nothing is loaded. run: ask mpirun its version."""
    prefix, package, mpirun = _places(environment)
    return parse(probe.facts(prefix, package, mpirun if run else None))


def _owns_address(name: str) -> bool:
    """Whether a name is an address of this machine: only its own addresses can be bound."""
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM):
            with closing(socket.socket(family, kind, protocol)) as trial:
                trial.bind(address)
                return True
    except OSError:
        return False
    return False


def local_names(names: Sequence[str]) -> set[str]:
    """Those of the names that mean this machine. A resolver that does not answer makes a name a remote
    one.
    """
    own = socket.gethostname()
    known = {"localhost", "127.0.0.1", own, own.partition(".")[0]}
    found = {name for name in names if name in known}
    asked = [name for name in names if name not in known]

    left = list(reversed(asked))

    def ask() -> None:
        while left:
            try:
                name = left.pop()
            except IndexError:
                return  # another thread took the last one
            if _owns_address(name):
                found.add(name)

    # Daemon threads: a resolver may hang for longer than anybody wants to wait, also at exit.
    threads = []
    for _ in range(min(_PARALLEL, len(asked))):
        thread = threading.Thread(target=ask, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            break  # the limit of processes; those that run do it all
        threads.append(thread)
    end = time.monotonic() + _RESOLVE_SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return set(found)


def unite_local(hosts: HostList, local: set[str]) -> HostList:
    """This machine once, however many of its names the list has."""
    first = next((host.name for host in hosts.hosts if host.name in local), None)
    united = merged(Host(str(first), host.slots) if host.name in local else host for host in hosts.hosts)
    return HostList(united, hosts.origin, hosts.firm)


def _mark(nonce: str) -> str:
    return f"@@ddlrun:{nonce}@@"


def _places(environment: Environment) -> tuple[str, str, str]:
    return str(environment.prefix), str(environment.package), str(environment.mpirun)


def _script(environment: Environment, nonce: str, peers: Sequence[str], library_path: str | None) -> str:
    """What /bin/sh does on a host: the probe, whose text comes on standard input, or the answer that there is
    no environment.

    The answer's mark is put together there: a remote shell that echoes its commands does not repeat it.
    """
    return _script_of_words(environment, shlex.quote(nonce), " ".join(map(shlex.quote, peers)), library_path)


def _script_of_words(environment: Environment, nonce: str, peers: str, library_path: str | None) -> str:
    """The same, of words as the shell has them."""
    python = shlex.quote(str(environment.python))
    places = " ".join(map(shlex.quote, _places(environment)))
    setting = "unset LD_LIBRARY_PATH"
    if library_path is not None:
        setting = f"LD_LIBRARY_PATH={shlex.quote(library_path)}; export LD_LIBRARY_PATH"
    return (
        f"if test -x {python}; then {setting}; exec {python} -I -S - {nonce} {places} {peers}; "
        f"else {_say('null', nonce)}; fi"
    )


def _say(answer: str, nonce: str) -> str:
    """Shell words that give an answer."""
    return f"printf '\\n@@%s:%s@@%s@@%s:%s@@\\n' ddlrun {nonce} '{answer}' ddlrun {nonce}"


def _script_by_image(image: Image, script: str, nonce: str) -> str:
    """What /bin/sh does on another host: the script in the image there, or the answer what is missing."""
    search = f"PATH=$PATH:{shlex.quote(image.search)}; " if image.search else ""
    return (
        f"{search}if ! test -e {shlex.quote(image.path)}; then {_say(_NO_IMAGE, nonce)}; "
        f"elif ! command -v {shlex.quote(image.program)} >/dev/null 2>&1; then {_say(_NO_PROGRAM, nonce)}; "
        f"else exec {shlex.join([*image.words(), '/bin/sh', '-c', script])}; fi"
    )


def remote_command(
    host: str,
    environment: Environment,
    nonce: str,
    peers: Sequence[str] = (),
    library_path: str | None = None,
) -> list[str]:
    """The ssh line that runs the probe on a host. library_path: the LD_LIBRARY_PATH that the ranks will get,
    None: none.
    """
    script = _script(environment, nonce, peers, library_path)
    if environment.image:
        script = _script_by_image(environment.image, script, nonce)
    # The login shell may be any: what it sees is one quoted word for /bin/sh.
    return environment.ssh.command(host, f"/bin/sh -c {shlex.quote(script)}")


def read_answer(output: str, nonce: str) -> Any:
    """What the probe printed between its marks, whatever surrounds it. Raises ValueError when there is
    nothing.
    """
    mark = _mark(nonce)
    found = re.search(re.escape(mark) + "(.*?)" + re.escape(mark), output, re.DOTALL)
    if not found:
        raise ValueError("no answer")
    return json.loads(found[1])


def answer_of(
    host: str, environment: Environment, source: str, words: Sequence[str], nonce: str, seconds: float
) -> Any:
    """What a Python program, given as its text, answers on another host, between the marks of the nonce.

    Raises OSError, ValueError when there is no answer, subprocess.TimeoutExpired after so many seconds.
    """
    line = [str(environment.python), "-I", "-S", "-", *words]
    if environment.image:
        line = [*environment.image.plain_words(), *line]
    done = subprocess.run(
        environment.ssh.command(host, f"exec {shlex.join(line)}"),
        input=source,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )
    return read_answer(done.stdout, nonce)


def _refusal(host: str, said: str, code: int) -> LaunchError:
    """The error for an ssh that failed, from its own words (the last lines; a banner may come before)."""
    last = " / ".join(said.strip().splitlines()[-2:])[-300:] or f"ssh ended with code {code} and no words"
    where = f"host {host}"
    if "Host key verification failed" in said or "IDENTIFICATION HAS CHANGED" in said:
        return LaunchError(
            Code.REFUSED,
            f"its host key is not known here: {last}",
            where,
            f"log in once by hand (`ssh {host}`) or ask the administrator for known_hosts",
        )
    if "Permission denied" in said or "Too many authentication failures" in said:
        return LaunchError(
            Code.REFUSED,
            f"it does not accept your ssh key: {last}",
            where,
            f"add your public key to ~/.ssh/authorized_keys there, until `ssh {host} true` works",
        )
    if "Could not resolve" in said or "not known" in said:
        return LaunchError(
            Code.UNREACHABLE,
            f"the name is not known: {last}",
            where,
            "check the spelling, DNS and /etc/hosts",
        )
    return LaunchError(
        Code.UNREACHABLE,
        f"it cannot be reached by ssh: {last}",
        where,
        f"check that the host is up and that `ssh {host} true` works without a password",
    )


def _no_way_in(image: Image, missing: str, where: str) -> LaunchError:
    if missing == "image":
        return LaunchError(
            Code.IMAGE,
            f"there is no image {image.path}",
            where,
            "copy it to the same path there, or put it on a file system that all hosts see",
        )
    return LaunchError(
        Code.IMAGE,
        f"the program {image.program}, which enters the image, was not found",
        where,
        f"install it there, or set {PROGRAM_VARIABLE} to its path",
    )


def step_command(
    hosts: Sequence[str],
    environment: Environment,
    nonce: str,
    peers: Sequence[str] = (),
    library_path: str | None = None,
) -> list[str]:
    """The step of Slurm that runs the probe on all these hosts of the job around, also where ssh is closed.
    Each answers with the nonce NAME.NONCE, by its name in Slurm.
    """
    # A host asks the way to the first others.
    others = " ".join(map(shlex.quote, peers[: _PEERS + 1]))
    choose = f'set --; for h in {others}; do test "$h" = "$SLURMD_NODENAME" || set -- "$@" "$h"; done; '
    script = choose + _script_of_words(environment, f'"$SLURMD_NODENAME".{nonce}', '"$@"', library_path)
    count = str(len(hosts))
    words = ["srun", "--overlap", "--mpi=none", "--cpu-bind=none", "--export=ALL", "-N", count, "-n", count]
    words += ["--ntasks-per-node=1", f"--nodelist={','.join(hosts)}", "--input=all"]
    return [*words, "/bin/sh", "-c", script]


class _Examiner:
    """Asks hosts for their facts."""

    def __init__(
        self, hosts: HostList, local: set[str], environment: Environment, library_path: str | None, log: Log
    ) -> None:
        self._local, self._environment, self._library_path, self._log = local, environment, library_path, log
        own = socket.gethostname()
        self._peers = [own if host.name in local else host.name for host in hosts.hosts]
        self._source = Path(probe.__file__).read_text()
        self._said: dict[str, tuple[Any, float, float]] = {}

    def ask_by_step(self, names: Sequence[str]) -> None:
        """Ask hosts by one step of Slurm; those that do not answer are asked one by one later."""
        nonce = os.urandom(8).hex()
        words = step_command(names, self._environment, nonce, self._peers, self._library_path)
        # The step's task is no rank of this start.
        own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_NTASKS_PER")}
        sent = time.time()
        try:
            done = subprocess.run(
                words,
                input=self._source,
                env=own,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=HOST_SECONDS,
                check=False,
            )
            output, code = done.stdout, str(done.returncode)
            said = done.stderr
        except (OSError, subprocess.TimeoutExpired) as error:
            output, code, said = "", type(error).__name__, str(error)
        received = time.time()
        for name in names:
            with contextlib.suppress(ValueError):
                self._said[name] = (read_answer(output, f"{name}.{nonce}"), sent, received)
        self._log(
            f"preflight by srun: {len(self._said)} of {len(names)} hosts answered; {code}; {said[-1000:]!r}"
        )

    def __call__(self, name: str) -> Facts | LaunchError:
        began = time.monotonic()
        try:
            found = self._ask(name)
        except LaunchError as error:
            return error
        except (OSError, ValueError) as error:
            return LaunchError(
                Code.ENVIRONMENT,
                f"the check failed: {error}",
                f"host {name}",
                "-skip-checks starts without it",
            )
        return replace(found, seconds=time.monotonic() - began)

    def _command(self, name: str, nonce: str) -> list[str]:
        own = socket.gethostname() if name in self._local else name
        peers = [peer for peer in self._peers if peer != own][:_PEERS]
        if name in self._local:
            script = _script(self._environment, nonce, peers, self._library_path)
            return ["/bin/sh", "-c", script]
        return remote_command(name, self._environment, nonce, peers, self._library_path)

    def _ask(self, name: str) -> Facts:
        if name in self._said:
            return self._facts(name, *self._said[name])
        nonce = os.urandom(8).hex()
        where = f"host {name}"
        sent = time.time()
        try:
            done = subprocess.run(
                self._command(name, nonce),
                input=self._source,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=HOST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LaunchError(
                Code.UNREACHABLE,
                f"it did not answer within {HOST_SECONDS:g} s",
                where,
                f"check that the host is up and that `ssh {name} true` ends at once",
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
            if done.returncode == 255 and name not in self._local and not entered:
                raise _refusal(name, done.stderr, done.returncode) from None
            last = plain((done.stderr or done.stdout).strip()[-300:], 300)
            if self._environment.image and name not in self._local:
                raise LaunchError(
                    Code.IMAGE,
                    f"the image cannot be entered there: {last}",
                    where,
                    f"log in there and try `{shlex.join([*self._environment.image.words(), 'true'])}`; "
                    f"other options can be given in {OPTIONS_VARIABLE}",
                ) from None
            raise LaunchError(
                Code.ENVIRONMENT,
                f"the environment's Python does not run there: {last}",
                where,
                f"check {self._environment.python} on that host (machine type, glibc, mounts)",
            ) from None
        if self._environment.image and isinstance(answer, str):
            raise _no_way_in(self._environment.image, answer, where)
        return self._facts(name, answer, sent, received)

    def _facts(self, name: str, answer: Any, sent: float, received: float) -> Facts:
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
    """Whether hosts are closed to ssh altogether, as in many clusters. To find that out of a thousand hosts
    one by one
    would take minutes.
    """

    def __init__(self) -> None:
        self._refused = self._reached = 0

    @property
    def to_all(self) -> bool:
        """So many have refused, and none has answered."""
        return self._refused >= _PARALLEL and self._reached == 0

    def note(self, found: Facts | LaunchError) -> None:
        """What asking a host has brought."""
        if isinstance(found, LaunchError) and found.code in (Code.UNREACHABLE, Code.REFUSED):
            self._refused += 1
        else:
            self._reached += 1

    def error(self, name: str) -> LaunchError:
        """For a host that is not asked."""
        return LaunchError(
            Code.UNREACHABLE,
            f"not asked, as {self._refused} other hosts are closed to ssh",
            f"host {name}",
            f"check that `ssh {name} true` works without a password",
        )


def look_at(
    hosts: HostList,
    local: set[str],
    environment: Environment,
    log: Log,
    library_path: str | None = None,
    heard: Callable[[str], None] | None = None,
    by_step: bool = False,
) -> Report:
    """Look at all hosts, and at this machine, at once. by_step: by a step of the Slurm job around, which has
    them all.

    library_path: the LD_LIBRARY_PATH that the ranks will get, None: none. heard: called with a
    host's name when it is done, from any thread.
    Raises LaunchError where this machine itself cannot start anything.
    """
    from concurrent.futures import (
        ThreadPoolExecutor,  # brings logging with it: not for a start without checks
    )

    began = time.monotonic()
    remote = [host.name for host in hosts.hosts if host.name not in local]
    if remote and not by_step and shutil.which("ssh") is None:
        raise LaunchError(
            Code.UNREACHABLE, "ssh was not found on PATH", f"host {remote[0]}", "install an OpenSSH client"
        )
    own = next((host.name for host in hosts.hosts if host.name in local), socket.gethostname())
    ask = _Examiner(hosts, local | {own}, environment, library_path, log)
    if by_step and remote:
        ask.ask_by_step(remote)
    closed = _Closed()

    def examine(name: str) -> Facts | LaunchError:
        remote_one = name != own and name not in local
        if remote_one and not hosts.firm and closed.to_all:
            return closed.error(name)
        found = ask(name)
        if remote_one:
            closed.note(found)
        if heard:
            heard(name)
        return found

    try:
        with ThreadPoolExecutor(min(_PARALLEL, 1 + len(remote))) as pool:
            answers = dict(zip([own, *remote], pool.map(examine, [own, *remote]), strict=True))
    except RuntimeError as error:
        raise LaunchError(
            Code.ENVIRONMENT,
            f"the hosts cannot be looked at: {error}",
            "on this machine",
            "raise its limit of processes (ulimit -u), or start with -skip-checks",
        ) from error
    here = answers[own]
    if isinstance(here, LaunchError) and own not in local:
        raise here
    facts, failed = {}, {}
    for name, answer in answers.items():
        try:
            if isinstance(answer, LaunchError):
                raise answer
            facts[name] = answer
            compare(name, answer, answer if isinstance(here, LaunchError) else here)
        except LaunchError as error:
            if own not in local and name == own:
                raise
            failed[name] = error
    by_ssh_alone = environment.image is not None and shutil.which("srun") is None
    if not hosts.firm and not by_ssh_alone:
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
        time.monotonic() - began,
    )
