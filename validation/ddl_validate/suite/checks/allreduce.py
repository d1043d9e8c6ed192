"""All-reduces of DDL by size: within a host, between the hosts of a rack, between racks, and on all ranks;
with the timing program of ddl-bench, which checks every sum.

What crosses the network is held against what DDL's cost model makes of the measured links. Within a host, and
for small sizes, the model is drawn alone: cores and caches decide there.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...allreduce.errors import PeerMissing
from ...allreduce.launch import MARK
from ...allreduce.peers import Ddl
from ...allreduce.programs import default_cache
from ...allreduce.sizes import show_rate, show_size
from ...common.bandwidth import busbw
from ...common.own_package import module_command
from ...common.running import RunFailed
from ..bench import Bench, Host
from ..model import CheckResult, Expectation, Figure, Finding, Kind, Status, status_of
from ..predict import description, links_before, planned, share_a_machine

TITLE = "all-reduces by tier and size, against the wire"
_SIZES = (1 << 16, 1 << 20, 1 << 24)
_MORE_SIZES = (1 << 12, *_SIZES, 1 << 26)
_JUDGED = 1 << 20  # bytes; less is decided by latencies
_LEAST, _MOST, _WARMUPS = 3, 1000, 2
_LARGEST_TOLERANCE = 0.6


@dataclass(frozen=True)
class Tier:
    """where: as in figures. ranks: of each of the hosts."""

    where: str
    hosts: tuple[Host, ...]
    ranks: int

    @property
    def size(self) -> int:
        return len(self.hosts) * self.ranks


def tiers(hosts: Sequence[Host], ranks: int, has_racks: bool) -> list[Tier]:
    """What can be measured alone, from the inside out, and all of it."""
    candidates = [Tier("within a host", tuple(hosts[:1]), ranks)]
    racks: dict[int, list[Host]] = {}
    for host in hosts:
        racks.setdefault(host.rack, []).append(host)
    if has_racks and len(racks) > 1:
        candidates.append(Tier("between hosts of a rack", tuple(racks[hosts[0].rack]), 1))
        candidates.append(Tier("between racks", tuple(members[0] for members in racks.values()), 1))
    else:
        candidates.append(Tier("between hosts", tuple(hosts), 1))
    if len(hosts) > 1 and ranks > 1:
        candidates.append(Tier("all ranks", tuple(hosts), ranks))
    return [tier for tier in candidates if tier.size > 1]


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    start = time.monotonic()
    result = CheckResult("allreduce", TITLE, Status.PASSED)
    chosen = tiers(bench.hosts, bench.ranks, bench.has_racks)
    if not chosen:
        result.status, result.reason = Status.SKIPPED, "there is one host with one core, so one rank"
        return result
    sizes = _SIZES if bench.level.name == "smoke" else _MORE_SIZES
    try:
        program = _program(bench, sizes)
    except PeerMissing as error:
        result.status, result.reason = Status.SKIPPED, str(error)
        return result
    expected = _Expected(bench, before, sizes)
    measurements: list[dict[str, Any]] = []
    for tier in chosen:
        name = "allreduce-" + tier.where.replace(" ", "-")
        try:
            times = measured(bench.start(name, program, result, tier.hosts, tier.ranks))
        except WrongSum as wrong:
            result.findings.append(_wrong(tier, str(wrong)))
            continue
        except (RunFailed, ValueError) as error:
            why = error.line if isinstance(error, RunFailed) else str(error)
            result.status, result.reason = Status.BROKEN, f"{tier.where}: {why}"
            break
        result.figures += [expected.figure(tier, size, times[size], result.commands[-1]) for size in sizes]
        largest = max(sizes)
        bench.say(f"{tier.where}: {show_rate(result.figures[-1].value)} at {show_size(largest)}")
        if tier.where != "all ranks":
            model = expected.seconds(tier, largest)
            measurements.append(
                {"tier": tier.where, "seconds": times[largest], "expected": model, "bytes": largest}
            )
    result.facts = {"tiers": measurements}
    if result.status is Status.PASSED:
        result.status = status_of(result.findings)
    result.seconds = time.monotonic() - start
    return result


class WrongSum(Exception):
    """What a rank has instead of a sum."""


def _program(bench: Bench, sizes: Sequence[int]) -> list[str]:
    """The timing program. Where there is no GPU it is compiled at its first use."""
    arguments = [
        ",".join(map(str, sizes)),
        f"{bench.level.seconds:g}",
        str(_LEAST),
        str(_MOST),
        str(_WARMUPS),
    ]
    if bench.gpus:
        return module_command(bench.prefix, "gpu.timing", Ddl.name, *arguments)
    return [str(Ddl(bench.prefix, default_cache()).program()), *arguments]


def measured(output: str) -> dict[int, float]:
    """Seconds by size, the medians; WrongSum, or ValueError where the program did not come to its end."""
    times: dict[int, float] = {}
    ended = False
    for line in output.splitlines():
        _, mark, text = line.partition(MARK)
        if not mark:
            continue
        event = json.loads(text)
        kind = event.get("event")
        if kind == "size":
            times[int(event["bytes"])] = statistics.median(event["seconds"])
        elif kind == "wrong":
            raise WrongSum(
                f"element {event['index']:.0f} of {show_size(event['bytes'])} on rank {event['rank']} is "
                f"{event['got']}, not {event['expected']}"
            )
        elif kind == "failed":
            raise ValueError(f"rank {event['rank']} failed at {show_size(event['bytes'])}: {event['text']}")
        ended = ended or kind == "end"
    if not ended:
        raise ValueError("the timing program did not come to its end")
    return times


class _Expected:
    """Times that the cost model makes of the measured links."""

    def __init__(self, bench: Bench, before: list[CheckResult], sizes: Sequence[int]) -> None:
        self._bench, self._sizes = bench, sizes
        self._links = links_before(before)
        self._shared = share_a_machine(before)
        self._planned: dict[str, dict[int, float]] = {}

    def seconds(self, tier: Tier, size: int) -> float | None:
        """None where the links that the tier uses were not measured."""
        if (self._links.memory if len(tier.hosts) == 1 else self._links.link) is None:
            return None
        if tier.where not in self._planned:
            racks = [host.rack for host in tier.hosts] if self._bench.has_racks else None
            cluster = description([tier.ranks] * len(tier.hosts), racks, self._links, 0.0, size)
            self._planned[tier.where] = planned(self._bench.prefix, cluster, self._sizes, self._bench.folder)
        return self._planned[tier.where][size]

    def figure(self, tier: Tier, size: int, seconds: float, command: str) -> Figure:
        model = self.seconds(tier, size)
        expected = None
        if model:
            judged = len(tier.hosts) > 1 and size >= _JUDGED and not self._shared
            tolerance = min(2 * self._bench.tolerance, _LARGEST_TOLERANCE)
            source = "prediction" if judged else "ideal"
            expected = Expectation(busbw(size, model, tier.size), source, tolerance)
        return Figure(
            "allreduce.busbw",
            tier.where,
            busbw(size, seconds, tier.size),
            "B/s",
            expected=expected,
            command=command,
            scale={"hosts": len(tier.hosts), "ranks": tier.size, "bytes": size},
        )


def _wrong(tier: Tier, text: str) -> Finding:
    where = f"host {tier.hosts[0].name}" if len(tier.hosts) == 1 else "cluster"
    hosts = (tier.hosts[0].name,) if len(tier.hosts) == 1 else ()
    return Finding(
        Kind.WRONG_RESULT,
        where,
        f"an all-reduce {tier.where} gave a wrong sum: {text}",
        "run the check `sums`, which names the host: --only sums",
        hosts,
    )
