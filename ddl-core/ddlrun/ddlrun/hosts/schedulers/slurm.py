"""Hosts of a Slurm job, from its environment.

The node list is expanded here, not by `scontrol show hostnames`: inside an image there may be no scontrol,
and a controller that does not answer would stop the start.
"""

import re
from collections.abc import Mapping

from ...errors import Code, LaunchError
from ..host_list import Host, HostList, check_name, check_slots

_PART = re.compile(r"[^\[\],]+|\[[^\[\]]*\]")
_TASKS = re.compile(r"(\d{1,7})(?:\(x(\d{1,7})\))?")
MAX_NODES = 100_000


def _error(problem: str, where: str) -> LaunchError:
    return LaunchError(Code.HOSTS, problem, where, "name the hosts with -H or -hostfile")


def numbers(text: str, where: str) -> list[int]:
    """`1,3-5` is 1, 3, 4, 5."""
    return [int(number) for number in _numbers(text, where)]


def _numbers(inside: str, where: str) -> list[str]:
    """`1,3-5` or `001-010`, zeros kept."""
    digits: list[str] = []
    for piece in inside.split(","):
        low, dash, high = piece.partition("-")
        high = high if dash else low
        if (
            not (low.isascii() and low.isdecimal() and high.isascii() and high.isdecimal())
            or len(low + high) > 24
        ):
            raise _error(f"{piece!r} is no number or range", where)
        first, last = int(low), int(high)
        if last < first or last - first >= MAX_NODES:
            raise _error(f"the range {piece!r} is empty or too long", where)
        digits += [str(number).zfill(len(low)) for number in range(first, last + 1)]
    return digits


def expand_nodelist(text: str, where: str = "") -> list[str]:
    """Names of `a,h[1-3,7],gpu[01-02]-ib[0-1]`, in order. where: for errors; default: the job's variable."""
    where = where or f"in SLURM_JOB_NODELIST={text!r}"
    names: list[str] = []
    at = 0
    while at < len(text):
        prefixes = [""]
        while at < len(text) and text[at] != ",":
            match = _PART.match(text, at)
            if not match:
                raise _error("the brackets do not match", where)
            at = match.end()
            choices = _numbers(match[0][1:-1], where) if match[0].startswith("[") else [match[0]]
            if len(prefixes) * len(choices) + len(names) > MAX_NODES:
                raise _error(f"more than {MAX_NODES} nodes", where)
            prefixes = [word + choice for word in prefixes for choice in choices]
        names += [check_name(word, where) for word in prefixes]
        at += 1
    return names


def expand_tasks(text: str, variable: str = "SLURM_TASKS_PER_NODE") -> list[int]:
    """`2(x3),1` is 2, 2, 2, 1."""
    where = f"in {variable}={text!r}"
    counts: list[int] = []
    for piece in text.split(","):
        match = _TASKS.fullmatch(piece)
        if not match or int(match[2] or 1) > MAX_NODES:
            raise _error(f"{piece!r} is not understood", where)
        counts += [check_slots(match[1], where)] * int(match[2] or 1)
    return counts


def hosts(environment: Mapping[str, str]) -> HostList | None:
    """Hosts of the surrounding job; the slots are its tasks on each node."""
    nodes = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST")
    if not nodes:
        return None
    names = expand_nodelist(nodes)
    tasks_text = environment.get("SLURM_TASKS_PER_NODE")
    tasks = expand_tasks(tasks_text) if tasks_text else [1] * len(names)
    if len(tasks) != len(names):
        raise _error(
            f"{len(tasks)} numbers of tasks for {len(names)} nodes",
            f"in SLURM_TASKS_PER_NODE={tasks_text!r}",
        )
    job = environment.get("SLURM_JOB_ID", "?")
    return HostList(tuple(map(Host, names, tasks)), f"Slurm job {job}", explicit_slots=False)
