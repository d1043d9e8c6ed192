"""Hosts of a Slurm job, from its environment.

The node list is expanded here, not by `scontrol show hostnames`: inside an image there may be no scontrol,
and a controller that does not answer would stop the start.
"""

import re
from collections.abc import Mapping

from ...errors import Code, LaunchError
from ..host_list import Host, HostList, check_name, check_slots, merged
from .ask import ask

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


def components(environment: Mapping[str, str]) -> int:
    """How many parts a heterogeneous job has; 1 for any other job."""
    count = 0
    while environment.get(f"SLURM_JOB_NODELIST_HET_GROUP_{count}"):
        count += 1
    return max(1, count)


def hosts(environment: Mapping[str, str]) -> HostList | None:
    """Hosts of the surrounding job, of all its components; the slots are its tasks on each node."""
    count = components(environment)
    if count > 1:
        groups = [_of_component(environment, f"_HET_GROUP_{number}") for number in range(count)]
    elif environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST"):
        groups = [_of_component(environment, "")]
    else:
        return None
    job = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOB_ID_HET_GROUP_0", "?")
    members = merged(host for group in groups for host in group)
    return HostList(members, f"Slurm job {job}", explicit_slots=False)


def _of_component(environment: Mapping[str, str], suffix: str) -> list[Host]:
    """Hosts of a component of the job; of the whole job with the suffix ""."""
    nodes = environment.get(f"SLURM_JOB_NODELIST{suffix}") or environment["SLURM_NODELIST"]
    names = expand_nodelist(nodes, f"in SLURM_JOB_NODELIST{suffix}={nodes!r}")
    variable = f"SLURM_TASKS_PER_NODE{suffix}"
    text = environment.get(variable)
    if not suffix and is_of_step(environment):
        return [
            Host(name, slots) for name, slots in zip(names, _of_job(environment, len(names)), strict=True)
        ]
    tasks = expand_tasks(text, variable) if text else [1] * len(names)
    if len(tasks) != len(names):
        raise _error(f"{len(tasks)} numbers of tasks for {len(names)} nodes", f"in {variable}={text!r}")
    return list(map(Host, names, tasks))


def is_of_step(environment: Mapping[str, str]) -> bool:
    """Whether the numbers of tasks are those of the step around, such as of `srun --pty bash`, which srun
    writes in place of the job's.
    """
    step = environment.get("SLURM_STEP_TASKS_PER_NODE")
    return (
        environment.get("SLURM_STEP_ID", "").isdecimal()
        and step is not None
        and step == environment.get("SLURM_TASKS_PER_NODE")
    )


def _of_job(environment: Mapping[str, str], nodes: int) -> list[int]:
    """Tasks of the job on each of its nodes, as far as Slurm tells them within a step."""
    each = environment.get("SLURM_NTASKS_PER_NODE", "")
    if each.isascii() and each.isdecimal() and int(each) > 0:
        return [int(each)] * nodes
    text, _ = ask(("scontrol", "show", "job", "-o", environment.get("SLURM_JOB_ID", "")), environment)
    match = re.search(r"\bNumTasks=(\d{1,7})\b", text or "")
    total = max(nodes, int(match[1])) if match else nodes
    return [total // nodes + (number < total % nodes) for number in range(nodes)]
