"""The table of the hosts and what was found on them: for people, and as plain data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..checks.diagnostics import CLOCK_SECONDS, size, speed
from ..checks.inventory import HostInventory
from ..checks.refusals import NotAsked
from ..errors import Code, LaunchError

_STATES = {
    Code.UNREACHABLE: "unreachable",
    Code.REFUSED: "login refused",
    Code.ENVIRONMENT: "no environment",
    Code.DDL: "wrong DDL",
    Code.MPI: "wrong MPI",
    Code.FOLDER: "no temporary files",
    Code.SHM: "/dev/shm full",
    Code.IMAGE: "no image",
    Code.NO_DRIVER: "no GPU driver",
    Code.OLD_DRIVER: "old GPU driver",
    Code.NO_GPU: "no GPU",
    Code.VISIBLE_GPUS: "GPUs hidden",
    Code.SHARED_GPUS: "too few GPUs",
    Code.GPU_FAILURE: "GPU driver fails",
}


def _network(facts: HostInventory) -> str:
    link = facts.interface
    text = f"{link.name} {speed(link.speed_mbit)}".strip() if link else ""
    return ", ".join(filter(None, [text, *facts.fabrics]))


def _clock(facts: HostInventory) -> str:
    return f"{facts.clock_s:+.1f} s" if abs(facts.clock_s) > CLOCK_SECONDS else ""


def _gpus(facts: HostInventory) -> str:
    models = sorted({gpu.model for gpu in facts.gpus})
    return f"{len(facts.gpus)} {' / '.join(models)}".strip() if facts.gpus else ""


def _nvlink(facts: HostInventory) -> str:
    islands = facts.gpu_report.islands() if facts.gpu_report else []
    return ", ".join(f"island of {len(island)} GPUs" for island in islands)


_COLUMNS: tuple[tuple[str, Callable[[HostInventory], str]], ...] = (
    ("processor", lambda facts: facts.cpu),
    ("cores", lambda facts: str(facts.core_count)),
    ("GPUs", _gpus),
    ("driver", lambda facts: facts.driver or ""),
    ("NVLink", _nvlink),
    ("network", _network),
    ("free memory", lambda facts: size(facts.memory_free_bytes)),
    ("free /dev/shm", lambda facts: size(facts.shm_free_bytes)),
    ("free temporary", lambda facts: size(facts.temporary_free_bytes)),
    ("clock", _clock),
    ("release", lambda facts: facts.release or ""),
    ("DDL", lambda facts: facts.ddl or "none"),
    ("MPI", lambda facts: facts.mpi or "none"),
    ("C library", lambda facts: facts.glibc),
)


def as_text(
    names: Sequence[str],
    facts: Mapping[str, HostInventory],
    failed: Mapping[str, LaunchError],
    seconds: float,
) -> str:
    """One line a host. What is the same everywhere is said once, above; what nobody has, not at all."""
    inventories = [facts[name] for name in names if name in facts]
    common, columns = [], []
    for title, get in _COLUMNS:
        values = {get(inventory) for inventory in inventories}
        if len(values) > 1:
            columns.append((title, get))
        elif values - {""}:
            common.append(f"{title} {values.pop()}")
    count = f"{len(names)} host{'s' if len(names) != 1 else ''}"
    lines = [f"{count} looked at in {seconds:.1f} s, {len(failed)} cannot take part"]
    if common:
        lines.append(f"everywhere: {'; '.join(common)}" if len(inventories) > 1 else "; ".join(common))
    if len(names) == 1 and not failed:
        return "\n".join(lines)
    rows = [["host", "state", *(title for title, _ in columns)]]
    for name in names:
        if name in failed:
            state = _STATES.get(failed[name].code, "failed")
            if isinstance(failed[name], NotAsked):
                state = "not looked at"
        else:
            state = "ok" if name in facts else "not looked at"
        rows.append([name, state, *(get(facts[name]) if name in facts else "" for _, get in columns)])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join(lines)


def as_data(
    names: Sequence[str], facts: Mapping[str, HostInventory], failed: Mapping[str, LaunchError]
) -> list[dict[str, Any]]:
    """One object a host: its name and state, what is wrong, and its facts."""
    rows = []
    for name in names:
        row: dict[str, Any] = {"host": name, "state": "ok" if name in facts else "not looked at"}
        if name in failed:
            row |= {"state": "failed", "code": int(failed[name].code), "problem": str(failed[name])}
        if name in facts:
            row["facts"] = asdict(facts[name])
        rows.append(row)
    return rows
