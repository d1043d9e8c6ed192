"""What calls cost, counted: the numbers of record.toml, which says what each is. None depends on time.

With DDL_WRITE_COSTS=1 the record is written anew instead of compared, to be reviewed as the rest of a change.
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from rank_processes import (
    ALLOW_ROOT,
    PREFIX,
    QUICK,
    compiled_program,
    finish,
    mpirun_words,
    own_environment,
    start,
)

pytestmark = pytest.mark.slow

RECORD = Path(__file__).parent / "record.toml"
WRITE = os.environ.get("DDL_WRITE_COSTS") == "1"
#: Ranks, and how many each emulated host has. One without mpirun.
LAYOUTS = {"1 rank": (1, ""), "2 ranks": (2, ""), "8 ranks": (8, ""), "8 ranks on 4 hosts": (8, "2,2,2,2")}
#: What is told of the links decides which plans there are; measured, it would be something else each time.
LINKS = {
    "version": 1,
    "tiers": [{}, {"name": "cluster", "bandwidth_mbit": 10000, "latency_us": 30}],
    "hosts": [f"emulated{host}" for host in range(4)],
}
#: Instructions depend on the compiler a little: these parts more fail, and fewer ask for a lower record.
MORE_INSTRUCTIONS, FEWER_INSTRUCTIONS = 0.10, 0.20

Costs = dict[str, dict[str, Any]]


def _program() -> Path:
    return compiled_program("call_costs")


def _bytes(number: int) -> str:
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number // size} {unit}"
    return f"{number} B"


def count(layout: str) -> Costs:
    """Runs the calls on a layout: by call, bytes and way what they cost."""
    ranks, hosts = LAYOUTS[layout]
    env = {**own_environment(), **ALLOW_ROOT, **QUICK, "OMPI_MCA_mpi_yield_when_idle": "1"}
    if hosts:
        env |= {
            "DDL_EMULATE_HOSTS": hosts,
            "DDL_OPTIONS": "-topology " + json.dumps(LINKS, separators=(",", ":")),
        }
    words = [str(_program())]
    if ranks > 1:
        mpirun = os.environ.get("DDL_TEST_MPIRUN")
        words = [*([mpirun] if mpirun else []), *mpirun_words(PREFIX, ranks)[1 if mpirun else 0 :], *words]
    child = start(words, env)
    out, err = finish(child, 300)
    assert child.returncode == 0, out + err
    costs: Costs = {}
    for line in out.splitlines():
        if not line.startswith("cost "):
            continue
        cost = json.loads(line.removeprefix("cost "))
        way = cost.pop("way")
        if not hosts:
            # How a host's chunks are cut is measured, and costs nothing that is counted here.
            way = way.partition(";")[0]
        key = f"{cost.pop('call')} {_bytes(cost.pop('bytes'))}: {way}"
        known = costs.setdefault(key, cost)
        known["allocations"] = max(known["allocations"], cost["allocations"])
    return costs


def differences(name: str, recorded: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What is to be said of one call; nothing where it costs what is recorded."""
    said = []
    if "system_calls" not in found:  # the kernel lacks syscall user dispatch
        recorded = {key: value for key, value in recorded.items() if key != "system_calls"}
    if "instructions" not in found:  # another processor
        recorded = {key: value for key, value in recorded.items() if key != "instructions"}
    for key in sorted(recorded.keys() | found.keys()):
        before, now = recorded.get(key, 0), found.get(key, 0)
        if key == "system_calls":
            if before != now:
                said.append(f"{name}: system calls {now or 'none'}, recorded {before or 'none'}")
            continue
        slack = key == "instructions"
        if now > before * (1 + (MORE_INSTRUCTIONS if slack else 0)):
            said.append(f"{name}: {key} {now}, recorded {before}: make it cheaper, or say why in the commit")
        elif now < before * (1 - (FEWER_INSTRUCTIONS if slack else 0)):
            said.append(f"{name}: {key} {now}, recorded {before}: lower the record")
    return said


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {number}' for key, number in value.items()) + "}"
    return str(value)


def _write(layout: str, costs: Costs) -> None:
    record = tomllib.loads(RECORD.read_text()) | {layout: costs}
    comment = "".join(line for line in RECORD.open() if line.startswith("#"))
    out = [comment]
    for name in LAYOUTS:
        out.append(f'["{name}"]\n')
        for key, cost in record.get(name, {}).items():
            inner = ", ".join(f"{what} = {_text(number)}" for what, number in cost.items())
            out.append(f'"{key}" = {{{inner}}}\n')
    RECORD.write_text("".join(out))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_calls_cost_what_is_recorded(layout: str) -> None:
    found = count(layout)
    if WRITE:
        _write(layout, found)
        pytest.skip(f"{RECORD} written: review what has changed")
    recorded = tomllib.loads(RECORD.read_text())[layout]
    said = [f"{key}: not recorded" for key in found.keys() - recorded.keys()]
    said += [f"{key}: recorded, but not made" for key in recorded.keys() - found.keys()]
    for key in found.keys() & recorded.keys():
        said += differences(key, recorded[key], found[key])
    said.sort()
    assert not said, "\n".join(
        [*said, "DDL_WRITE_COSTS=1 ci/test ddl-core/libddl/tests/costs writes the record anew"]
    )


def test_any_change_is_said() -> None:
    recorded = {"allocations": 0, "instructions": 1000, "messages_between_hosts": 12, "system_calls": {}}
    assert not differences("call", recorded, recorded | {"instructions": 1050})
    assert "make it cheaper" in differences("call", recorded, recorded | {"allocations": 1})[0]
    assert "make it cheaper" in differences("call", recorded, recorded | {"instructions": 1200})[0]
    assert "lower the record" in differences("call", recorded, recorded | {"messages_between_hosts": 11})[0]
    assert "openat" in differences("call", recorded, recorded | {"system_calls": {"openat": 1}})[0]
