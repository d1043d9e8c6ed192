"""What DDL will see of a job: asked of DDL's own library, which needs no job for it."""

import ctypes
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..checks.inventory import Domain, HostInventory
from ..environment import Environment
from ..errors import Code, LaunchError
from .slots import Slot


def domains_of(facts: HostInventory | None, cores: Sequence[int]) -> list[Domain]:
    """The parts of a host that hold these cores; all of them for a rank that is not bound."""
    if facts is None:
        return []
    return [domain for domain in facts.domains if not cores or set(cores) & set(domain.cores)]


def _only(values: set[int]) -> int:
    return values.pop() if len(values) == 1 else -1


def request(
    slots: Sequence[Slot], facts: Mapping[str, HostInventory], variables: Mapping[str, str]
) -> dict[str, Any]:
    """The description of a job that ddl_preview_topology takes."""
    ranks = []
    for slot in slots:
        parts = domains_of(facts.get(slot.host), slot.cores)
        ranks.append(
            {
                "host": facts[slot.host].name if slot.host in facts else slot.host,
                "numa": _only({domain.node for domain in parts}),
                "package": _only({domain.package for domain in parts}),
                **({"gpu": slot.gpu.place} if slot.gpu else {}),
            }
        )
    description: dict[str, Any] = {"options": variables.get("DDL_OPTIONS", ""), "ranks": ranks}
    if variables.get("DDL_HOST_ORDER"):
        description["order"] = variables["DDL_HOST_ORDER"].split(",")
    return description


def topology(environment: Environment, description: Mapping[str, Any]) -> dict[str, Any]:
    """The topology as ddl.describe() would give it. Raises LaunchError as the start would end."""
    where = f"in {environment.prefix}"
    try:
        library = ctypes.CDLL(str(_library(environment)), mode=os.RTLD_LAZY)
        preview = library.ddl_preview_topology
    except (OSError, AttributeError) as error:
        raise LaunchError(
            Code.DDL,
            f"DDL's library cannot be asked: {error}",
            where,
            "install the package ddl of this release in the environment of ddlrun",
        ) from None
    library.ddl_last_error.restype = ctypes.c_char_p
    preview.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)]
    text = json.dumps(description).encode()
    needed = ctypes.c_size_t()
    if preview(text, None, 0, ctypes.byref(needed)):
        raise LaunchError(
            Code.TOPOLOGY,
            f"DDL refuses this topology: {library.ddl_last_error().decode(errors='replace')}",
            f"DDL_OPTIONS={description['options']}",
            "change the options or the hosts as it says",
        )
    buffer = ctypes.create_string_buffer(needed.value)
    preview(text, buffer, needed.value, None)
    result = json.loads(buffer.value)
    assert isinstance(result, dict)
    return result


def _library(environment: Environment) -> Path:
    for folder in (environment.prefix / "lib", environment.package / "../../lib"):
        for path in sorted(folder.glob("libddl.so*")):
            return path
    raise OSError("there is no libddl.so")
