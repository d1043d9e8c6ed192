"""Hosts, and the checks every host name passes before it goes anywhere near a command line."""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import Code, LaunchError

# Names and addresses begin with a letter or digit: what begins with a dash would be an option of ssh.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253}[A-Za-z0-9])?")
MAX_SLOTS = 1_000_000
#: The origin of a list that nobody gave.
THIS_MACHINE = "this machine"


@dataclass(frozen=True)
class Host:
    """One host. slots: how many ranks it may take; None where nobody said."""

    name: str
    slots: int | None = None


@dataclass(frozen=True)
class HostList:
    """Hosts in the order of their ranks.

    origin: where they come from, in words. explicit_slots: the slots are what the user wants, not merely
    what a scheduler reserved. Every host appears once.
    """

    hosts: tuple[Host, ...]
    origin: str
    explicit_slots: bool = True


def _is_ipv6(name: str) -> bool:
    try:
        return name.count(":") > 1 and "%" not in name and bool(ipaddress.IPv6Address(name))
    except ValueError:
        return False


def split_slots(text: str) -> tuple[str, str | None]:
    """Name and slots of `host:2`, `[fd00::1]:2` and `fd00::1`; None: without slots."""
    if text.startswith("["):
        name, bracket, rest = text[1:].partition("]")
        if bracket and (not rest or rest.startswith(":")):
            return name, rest[1:] if rest else None
    if _is_ipv6(text):
        return text, None
    name, colon, slots = text.partition(":")
    return name, slots if colon else None


def check_name(name: str, where: str, code: Code = Code.HOSTS) -> str:
    if not _NAME.fullmatch(name) and not _is_ipv6(name):
        remedy = "a host name has letters, digits, dots, dashes and underscores"
        if "@" in name:
            remedy = "set the user in ~/.ssh/config, not in the host name"
        raise LaunchError(code, f"{name!r} is no host name", where, remedy)
    return name


def check_slots(text: str, where: str, code: Code = Code.HOSTS) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 7 and 1 <= int(text) <= MAX_SLOTS):
        raise LaunchError(
            code, f"{text!r} is no number of slots", where, f"write a number from 1 to {MAX_SLOTS}"
        )
    return int(text)


def merged(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """Each host once, at its first place. A name said n times without slots has n slots, as with mpirun."""
    entries: dict[str, list[int | None]] = {}
    for host in hosts:
        entries.setdefault(host.name, []).append(host.slots)
    return tuple(
        Host(name, None if slots == [None] else sum(1 if count is None else count for count in slots))
        for name, slots in entries.items()
    )


def parse_host_option(text: str) -> tuple[Host, ...]:
    """Hosts of `-H a:2,b`."""
    hosts = []
    for part in text.split(","):
        name, slots = split_slots(part.strip())
        where = f"in -H {text!r}"
        check_name(name, where)
        hosts.append(Host(name, None if slots is None else check_slots(slots, where)))
    return merged(hosts)
