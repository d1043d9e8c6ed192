"""The addresses of this host, and which of them other hosts reach."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Sequence

_IPV6_INTERFACES = "/proc/net/if_inet6"
# Of an address of IPv6 that no other host may use, or that is not settled.
_GLOBAL_SCOPE, _DAD_FAILED, _TENTATIVE = 0x00, 0x08, 0x40
_SIOCGIFADDR = 0x8915
_SIOCGIFFLAGS = 0x8913
_UP, _LOOPBACK, _RUNNING = 0x1, 0x8, 0x40
_LOOKUP_SECONDS = 2.0
TOKEN_BYTES = 16


def new_token() -> bytes:
    """A secret by which one end of a connection knows the other."""
    return os.urandom(TOKEN_BYTES)


def same_token(token: bytes, other: bytes) -> bool:
    """Whether two tokens are equal, in a time that tells nothing about them."""
    from hmac import compare_digest  # brings OpenSSL with it

    return compare_digest(token, other)


def own_addresses() -> list[str]:
    """Addresses that others may reach this host by: that of its name first, then those of its interfaces, of
    IPv4 before IPv6. No loopback, which is somebody else's on another host, and no link-local ones.
    """
    resolved: list[str] = []

    def of_the_name() -> None:
        try:
            for *_, address in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM):
                resolved.append(str(address[0]))
        except OSError:
            pass  # a name that nobody knows, as in many containers

    # A resolver may hang for longer than anybody wants to wait.
    asking = threading.Thread(target=of_the_name, daemon=True)
    asking.start()
    asking.join(_LOOKUP_SECONDS)
    named = list(resolved)
    interface_addresses = _of_interfaces()
    # /etc/hosts often gives a host's name 127.0.1.1, or an address that it no longer has.
    return [
        *dict.fromkeys([address for address in named if address in interface_addresses] + interface_addresses)
    ]


def address_of(interface: str) -> str:
    """The address of a network interface, of IPv6 where it has none of IPv4. Raises OSError where it has
    neither.
    """
    try:
        return socket.inet_ntoa(_ask(_SIOCGIFADDR, interface)[20:24])
    except OSError:
        for address, name in _of_ipv6():
            if name == interface:
                return address
        raise


def create_server(address: str = "", backlog: int | None = None) -> socket.socket:
    """A socket that listens at a free port: of this address, or of all of this host, IPv6 included."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if not address and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # IPv6 is switched off
            return socket.create_server(("", 0), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    return socket.create_server((address, 0), family=family, backlog=backlog)


def _ask(request: int, interface: str) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        return fcntl.ioctl(query, request, struct.pack("256s", interface.encode()[:15]))


def _of_interfaces() -> list[str]:
    addresses = []
    for _, name in socket.if_nameindex():
        with contextlib.suppress(OSError):  # without an address
            flags = struct.unpack_from("H", _ask(_SIOCGIFFLAGS, name), 16)[0]
            if flags & (_UP | _RUNNING) == _UP | _RUNNING and not flags & _LOOPBACK:
                addresses.append(socket.inet_ntoa(_ask(_SIOCGIFADDR, name)[20:24]))
    return addresses + [address for address, _ in _of_ipv6()]


def _of_ipv6() -> list[tuple[str, str]]:
    """Addresses of IPv6 that other hosts may use, each with its interface; none without IPv6."""
    addresses = []
    with contextlib.suppress(OSError), open(_IPV6_INTERFACES) as listing:
        for line in listing:
            digits, _, _, scope, flags, name = line.split()
            if int(scope, 16) == _GLOBAL_SCOPE and not int(flags, 16) & (_DAD_FAILED | _TENTATIVE):
                addresses.append((socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)), name))
    return addresses


class Beacon:
    """Listens on all interfaces while others find out which address reaches it; answers with a token."""

    def __init__(self) -> None:
        self.token = new_token()
        self._listener = create_server(backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return  # closed
            with peer:
                try:
                    peer.settimeout(1)
                    peer.sendall(self.token)
                except OSError:
                    continue

    def close(self) -> None:
        """Stops listening."""
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()


def reached(addresses: Sequence[str], port: int, token: bytes, seconds: float = 3.0) -> list[bool]:
    """Whether the beacon with this token answers at each address; all are tried at once."""
    answers = [False] * len(addresses)

    def attempt(index: int) -> None:
        try:
            with socket.create_connection((addresses[index], port), timeout=seconds) as connection:
                reply = b""
                while len(reply) < TOKEN_BYTES and (more := connection.recv(TOKEN_BYTES - len(reply))):
                    reply += more
                answers[index] = same_token(reply, token)
        except OSError:
            pass  # not reached, which is the answer

    attempts = [threading.Thread(target=attempt, args=(i,), daemon=True) for i in range(len(addresses))]
    for thread in attempts:
        thread.start()
    for thread in attempts:
        thread.join(seconds + 1)
    return list(answers)
