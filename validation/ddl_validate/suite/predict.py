"""What measured links let one expect of an all-reduce and of training, by DDL's cost model."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .model import CheckResult, Figure
from .published import simulate

_HOST_LATENCY = 2e-6  # seconds of a message through shared memory, where nothing was measured


@dataclass(frozen=True)
class Links:
    """Bytes a second and seconds, as measured. memory: what a host's memory copies; link: between hosts of a
    rack (or of any two, without racks); uplink: of a rack as a whole. None: not measured.
    """

    memory: float | None
    link: float | None
    latency: float | None
    uplink: float | None = None


def links_of(figures: Iterable[Figure]) -> Links:
    """The medians of the figures: a single slow link is a finding, and no reason to expect less."""
    values: dict[str, list[float]] = {}
    for figure in figures:
        values.setdefault(figure.name, []).append(figure.value)

    def middle(name: str) -> float | None:
        positive = [value for value in values.get(name, []) if value > 0]
        return statistics.median(positive) if positive else None

    return Links(
        middle("host.memory"), middle("link.bandwidth"), middle("link.latency"), middle("rack.bandwidth")
    )


def description(
    ranks: Sequence[int], racks: Sequence[int] | None, links: Links, step: float, size: int
) -> dict[str, Any]:
    """A cluster for ddlrun -simulate. ranks: of each host. step: seconds of a step without exchange. size:
    bytes of its gradients. ValueError where there are several hosts and no measured link.
    """
    memory = links.memory or 5e9
    tiers: list[dict[str, Any]] = [
        {"name": "host", "members": _members(ranks), "bandwidth": memory, "latency": _HOST_LATENCY}
    ]
    if len(ranks) > 1:
        if links.link is None:
            raise ValueError("no link between hosts was measured")
        latency = links.latency or 5e-5
        in_racks = list(Counter(racks).values()) if racks and len(set(racks)) > 1 else [len(ranks)]
        if len(in_racks) == 1:
            tiers.append(_tier("cluster", len(ranks), links.link, latency))
        else:
            tiers.append(_tier("rack", _members(in_racks), links.link, latency))
            tiers.append(_tier("cluster", len(in_racks), links.uplink or links.link, latency))
    return {
        "version": 1,
        "name": "measured",
        "source": "links measured by wmlce validate",
        # a rank reads two arrays and writes one
        "device": {"reduce": max(memory / 3, 1e6)},
        "tiers": tiers,
        "step": {"compute": step, "bytes": size},
    }


def _tier(name: str, members: int | list[int], bandwidth: float, latency: float) -> dict[str, Any]:
    return {"name": name, "members": members, "bandwidth": bandwidth, "latency": latency}


def _members(counts: Sequence[int]) -> int | list[int]:
    return counts[0] if len(set(counts)) == 1 else list(counts)


def planned(prefix: Path, cluster: dict[str, Any], sizes: Sequence[int], folder: Path) -> dict[int, float]:
    """Seconds that DDL's plan takes for an all-reduce of each of ``sizes`` bytes on all ranks of the cluster,
    by the environment's ddlrun. folder: keeps the description. ValidateError where it does not tell.
    """
    ranks = _ranks(cluster)
    if ranks < 2:
        return dict.fromkeys(sizes, 0.0)
    with tempfile.NamedTemporaryFile(
        "w", dir=folder, prefix="cluster-", suffix=".json", delete=False
    ) as described:
        json.dump(cluster, described, indent=1)
    times = {}
    for size in sizes:
        simulation = simulate(prefix, [described.name, "--bytes", str(size), "--ranks", str(ranks)])
        times[size] = next(
            float(prediction["allreduce_s"])
            for prediction in simulation["predictions"]
            if prediction["algorithm"] == "planned" and prediction["ranks"] == ranks
        )
    return times


def _ranks(cluster: dict[str, Any]) -> int:
    host = cluster["tiers"][0]["members"]
    if isinstance(host, list):
        return sum(host)
    hosts = 1
    for tier in cluster["tiers"][1:]:
        members = tier["members"]
        hosts = sum(members) if isinstance(members, list) else hosts * members
    return int(host) * hosts


def links_before(before: Iterable[CheckResult]) -> Links:
    """Links that earlier checks have measured."""
    return links_of(figure for result in before for figure in result.figures)


def share_a_machine(before: Iterable[CheckResult]) -> bool:
    """Do hosts run on one machine, as containers do? Then they take each other's cores, and no model of
    links says what to expect.
    """
    boots = [
        boot
        for result in before
        for boot in (result.facts.get("boots") or {}).values()
        if result.name == "imports"
    ]
    return len(boots) != len(set(boots))
