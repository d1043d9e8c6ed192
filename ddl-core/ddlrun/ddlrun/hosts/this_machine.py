"""Which of a job's host names mean the machine that ddlrun runs on."""

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import closing

from .host_list import Host, HostList, merged

_RESOLVE_SECONDS = 4.0
_PARALLEL = 64


def _owns_address(name: str) -> bool:
    """Whether a name is an address of this machine: packets to it would come from the very same. To bind it
    proves nothing, as hosts may be allowed to bind any (net.ipv4.ip_nonlocal_bind).
    """
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM):
            with closing(socket.socket(family, kind, protocol)) as trial:
                trial.connect(address)
                source = str(trial.getsockname()[0])
                return source == address[0] or source.startswith("127.")
    except OSError:
        return False
    return False


def plain_names() -> set[str]:
    """Names of this machine that need no look-up."""
    hostname = socket.gethostname()
    return {"localhost", "127.0.0.1", "::1", hostname, hostname.partition(".")[0]}


def local_names(names: Sequence[str]) -> set[str]:
    """Pick the names that mean this machine. A resolver that does not answer makes a name a remote one."""
    plain = plain_names()
    matches = {name for name in names if name in plain}
    unresolved = [name for name in names if name not in plain]

    queue = list(reversed(unresolved))

    def ask() -> None:
        while queue:
            try:
                name = queue.pop()
            except IndexError:
                return  # another thread took the last one
            if _owns_address(name):
                matches.add(name)

    # Daemon threads: a resolver may hang for longer than anybody wants to wait, also at exit.
    threads = []
    for _ in range(min(_PARALLEL, len(unresolved))):
        thread = threading.Thread(target=ask, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            break  # the limit of processes; those that run do it all
        threads.append(thread)
    end = time.monotonic() + _RESOLVE_SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return set(matches)


def unite_local(hosts: HostList, local: set[str]) -> HostList:
    """This machine once, however many of its names the list has."""
    first = next((host.name for host in hosts.hosts if host.name in local), "")
    if ":" in first:  # for which mpirun's files have no form
        first = "localhost"
    united = merged(Host(first, host.slots) if host.name in local else host for host in hosts.hosts)
    return HostList(united, hosts.origin, hosts.explicit_slots)
