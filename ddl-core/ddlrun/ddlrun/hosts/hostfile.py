"""Hostfiles and rankfiles: files of users, so every finding names its line."""

import re
from collections.abc import Iterator
from pathlib import Path

from ..errors import Code, LaunchError
from .host_list import Host, check_name, check_slots, merged, split_slots

_RANK = re.compile(r"rank\s+(\d{1,7})\s*=\s*(\S+)\s+slots?\s*=\s*(\S+)")
_MAX_BYTES = 64 << 20
# The texts of pipes, which can be read once, by their names.
_PIPES: dict[str, str] = {}


def read(path: str, option: str) -> str:
    """Text of a file that an option names."""
    where = f"in -{option} {path}"
    if path in _PIPES:
        return _PIPES[path]
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise LaunchError(
            Code.HOSTFILE, f"cannot read the file: {reason}", where, "name a readable text file"
        ) from error
    if len(data) > _MAX_BYTES:
        raise LaunchError(Code.HOSTFILE, "the file is larger than 64 MiB", where, "name a list of hosts")
    if not Path(path).is_file():
        _PIPES[path] = text
    return text


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.partition("#")[0].strip()
        if bare:
            yield number, bare


def parse_hostfile(text: str, name: str) -> tuple[Host, ...]:
    """Hosts of `host`, `host:2`, or `host slots=2 max_slots=4` lines; `#` begins a comment. Several lines add
    up.
    """
    hosts = []
    for number, line in _lines(text):
        where = f"{name}, line {number}"
        first, *rest = line.split()
        host, count = split_slots(first)
        check_name(host, where, Code.HOSTFILE)
        slots = None if count is None else check_slots(count, where, Code.HOSTFILE)
        for word in re.sub(r"\s*=\s*", "=", " ".join(rest)).split():
            key, equals, value = word.partition("=")
            if not equals or key not in ("slots", "max_slots", "max-slots"):
                raise LaunchError(
                    Code.HOSTFILE,
                    f"{word!r} is not understood",
                    where,
                    "write `host slots=N`, or only `host`",
                )
            limit = check_slots(value, where, Code.HOSTFILE)
            if key == "slots":
                if slots is not None:
                    raise LaunchError(
                        Code.HOSTFILE, "the slots are given twice", where, "write `host slots=N`"
                    )
                slots = limit
        hosts.append(Host(host, slots))
    if not hosts:
        raise LaunchError(Code.HOSTFILE, "the file names no host", name, "write one host a line")
    return merged(hosts)


def parse_rankfile(text: str, name: str) -> tuple[Host, ...]:
    """Hosts of a rankfile in the order of their first ranks; slots is the number of ranks on each."""
    ranks: dict[int, str] = {}
    for number, line in _lines(text):
        where = f"{name}, line {number}"
        match = _RANK.fullmatch(line)
        if not match:
            raise LaunchError(
                Code.HOSTFILE, f"{line!r} is not understood", where, "write `rank 0=host slot=0-3`"
            )
        rank = int(match[1])
        if rank in ranks:
            raise LaunchError(Code.HOSTFILE, f"rank {rank} is placed twice", where, "give each rank one line")
        ranks[rank] = check_name(match[2], where, Code.HOSTFILE)
    if sorted(ranks) != list(range(len(ranks))) or not ranks:
        absent = next((rank for rank in range(len(ranks) + 1) if rank not in ranks), 0)
        raise LaunchError(
            Code.HOSTFILE, f"rank {absent} has no line", name, "number the ranks 0, 1, 2, … without gaps"
        )
    return merged(Host(ranks[rank], 1) for rank in sorted(ranks))
