"""Hosts of a Flux instance or job: Flux itself is asked, for it puts none of them in the environment."""

import json
from collections.abc import Mapping
from typing import Any

from ...errors import Code, LaunchError
from ..host_list import Host, HostList, check_name, merged
from .ask import ask
from .slurm import expand_nodelist, numbers

_REMEDY = "name the hosts with -H or -hostfile"


def _resource_set(environment: Mapping[str, str]) -> tuple[str, str]:
    """Flux's description of the resources around, and the command that told it."""
    job = environment.get("FLUX_JOB_ID")
    commands: list[tuple[str, ...]] = [("flux", "job", "info", job, "R")] if job else []
    commands += [("flux", "resource", "R"), ("flux", "kvs", "get", "resource.R")]
    reasons = []
    for command in commands:
        text, reason = ask(command, environment)
        if text is not None:
            return text, " ".join(command)
        reasons.append(reason)
    raise LaunchError(Code.HOSTS, reasons[0], "asking Flux for its hosts", _REMEDY)


def parse_resource_set(text: str, where: str) -> tuple[Host, ...]:
    """Hosts of a resource set (version 1); the slots are its cores."""
    try:
        execution: Any = json.loads(text)["execution"]
        nodes: list[str] = []
        for part in execution["nodelist"]:
            nodes += expand_nodelist(str(part), where)
        cores = [0] * len(nodes)
        for entry in execution["R_lite"]:
            for rank in numbers(str(entry["rank"]).strip("[]"), where):
                listed = numbers(str(entry["children"]["core"]).strip("[]"), where)
                cores[rank] += len(listed)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise LaunchError(
            Code.HOSTS, f"what Flux says of its resources is not understood: {error!r}", where, _REMEDY
        ) from None
    return merged(
        Host(check_name(name, where), count) for name, count in zip(nodes, cores, strict=True) if count
    )


def hosts(environment: Mapping[str, str]) -> HostList | None:
    if not environment.get("FLUX_URI"):
        return None
    text, command = _resource_set(environment)
    return HostList(parse_resource_set(text, f"in `{command}`"), "Flux", explicit_slots=False)
