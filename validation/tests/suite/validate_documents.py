"""Results of `wmlce validate` as a cluster would give them, built in code: for tests of what reads them."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence

from ddl_validate.suite.document import Document
from ddl_validate.suite.model import (
    LOWER,
    CheckResult,
    Expectation,
    Figure,
    Finding,
    Kind,
    Status,
)

BEGIN = datetime.datetime(2026, 3, 1, 6, 0, tzinfo=datetime.UTC)
LINK, CORE, MEMORY = 11.2e9, 41.0, 180e9


def _peers(value: float) -> Expectation:
    return Expectation(value, "peers", 0.15)


def _training(hosts: int, ranks_each: int, slowed: float) -> CheckResult:
    numbers = sorted({number for number in (1, 2, 4, 8, 16, 32, 64) if number <= hosts} | {hosts})
    figures = []
    for way, cost in (("ddl", 0.01), ("horovod", 0.03)):
        for number in numbers:
            ranks = number * ranks_each
            kept = 1 / (1 + cost * (number - 1) ** 0.5)
            predicted = 310.0 * ranks * kept
            where, scale = f"{number} host(s)", {"hosts": number, "ranks": ranks}
            program = f"python -m tf_cnn_benchmarks --variable_update={way}"
            command = f"/opt/powerai/bin/ddlrun -nnodes {number} {program}"
            figures.append(
                Figure(
                    f"training.{way}.images_per_sec",
                    where,
                    predicted * (slowed if number == hosts else 0.98),
                    "images/s",
                    expected=Expectation(predicted, "prediction", 0.15),
                    command=command,
                    scale=scale,
                )
            )
            figures.append(Figure(f"training.{way}.kept", where, kept, "1", command=command, scale=scale))
    return CheckResult(
        "training",
        "training with tf_cnn_benchmarks, against the prediction",
        Status.PASSED,
        310.5,
        figures=figures,
        facts={
            "model": "resnet50",
            "batch": 64,
            "gradients": 102_000_000,
            "ideal": {"ddl": 310.0 * ranks_each, "horovod": 310.0 * ranks_each},
            "per_rank": [310.0 + (rank % 5) for rank in range(hosts * ranks_each)],
            "tiers": [
                {"tier": "host", "seconds": 0.0021, "expected": 0.0020},
                {"tier": "rack", "seconds": 0.0080, "expected": 0.0075},
            ],
        },
        commands=[figures[0].command],
        logs=["validate/training/ddl-4-hosts.log"],
    )


def _allreduce() -> CheckResult:
    figures = [
        Figure(
            "allreduce.busbw",
            f"{tier} tier",
            rate * min(1.0, size / (size + 2e6)),
            "B/s",
            expected=Expectation(rate * min(1.0, size / (size + 1.8e6)), "prediction", 0.2),
            command=f"ddl-bench run --sizes {size}",
            scale={"bytes": size},
        )
        for tier, rate in (("host", 40e9), ("rack", 10.5e9))
        for size in (1 << 16, 1 << 20, 1 << 24, 1 << 28)
    ]
    return CheckResult(
        "allreduce", "all-reduce by size, against the wire", Status.PASSED, 22.0, figures=figures
    )


def cluster(
    hosts: int = 4,
    racks: int = 1,
    *,
    run: int = 0,
    training: float = 0.98,
    link: float = 1.0,
    noise: float = 0.02,
    ranks_each: int = 4,
) -> Document:
    """A passed run. training, link: multiples of what such a run gives. run: its number, a day apart."""
    chance = random.Random(f"{hosts} {racks} {run}")

    def noisy(value: float) -> float:
        return value * (1 + noise * chance.uniform(-1, 1))

    names = [f"node{number:03}" for number in range(1, hosts + 1)]
    rack_of = [number * racks // hosts for number in range(hosts)]
    command = "python -m ddl_validate.suite.probes pairs --seconds 2"
    links = []
    distance = 1
    while distance < hosts:
        for number in range(hosts):
            other = number ^ distance
            if number < other < hosts:
                where = f"hosts {names[number]} and {names[other]}"
                links.append(
                    Figure(
                        "link.bandwidth",
                        where,
                        noisy(LINK * link),
                        "B/s",
                        expected=_peers(LINK),
                        command=command,
                    )
                )
                links.append(
                    Figure("link.latency", where, noisy(2.1e-6), "s", LOWER, _peers(2.1e-6), command=command)
                )
        distance *= 2
    if racks > 1:
        links += [
            Figure(
                "rack.bandwidth",
                f"rack {rack}",
                noisy(4 * LINK),
                "B/s",
                expected=_peers(4 * LINK),
                command=command,
            )
            for rack in range(racks)
        ]
    own = [
        figure
        for name in names
        for figure in (
            Figure(
                "host.core",
                f"host {name}",
                noisy(CORE),
                "GFLOP/s",
                expected=_peers(CORE),
                command="probes cores",
            ),
            Figure(
                "host.memory",
                f"host {name}",
                noisy(MEMORY),
                "B/s",
                expected=_peers(MEMORY),
                command="probes memory",
            ),
        )
    ]
    started = BEGIN + datetime.timedelta(days=run)
    return Document(
        level="daily",
        hosts=names,
        ranks=[ranks_each] * hosts,
        racks=rack_of if racks > 1 else None,
        site="example",
        command="wmlce validate --level daily",
        started=started.isoformat(timespec="seconds"),
        seconds=402.5,
        release="2.0.0",
        software={"ddl": "2.0.0", "tensorflow": "2.21.0"},
        machine={"processor": "POWER9", "cores": 44, "memory": 256 << 30},
        results=[
            CheckResult(
                "environment", "hosts, software and settings, the same everywhere", Status.PASSED, 2.5
            ),
            CheckResult("hosts", "cores and memory of every host", Status.PASSED, 14.0, figures=own),
            CheckResult("links", "links between hosts", Status.PASSED, 20.0, figures=links),
            CheckResult("sums", "all-reduces whose sums are known", Status.PASSED, 6.0),
            CheckResult("gpus", "GPUs of every host", Status.SKIPPED, reason="no host has a GPU"),
            _allreduce(),
            _training(hosts, ranks_each, training),
        ],
    )


def find(document: Document, check: str, *findings: Finding) -> Document:
    """The same document, with findings in one of its checks."""
    result = next(one for one in document.results if one.name == check)
    result.findings += findings
    result.status = Status.BROKEN if findings[0].kind is Kind.NOT_CHECKED else Status.FAILED
    return document


def slow(document: Document, where: str, factor: float) -> Document:
    """The same document, with all figures of a place at a share of their value."""
    for result in document.results:
        for number, figure in enumerate(result.figures):
            if figure.where == where:
                value = figure.value * (factor if figure.better != LOWER else 1 / factor)
                result.figures[number] = Figure(**{**vars(figure), "value": value})
    return document


_WHERE = {
    Kind.WRONG_RESULT: ("sums", "host node003", ("node003",)),
    Kind.ENVIRONMENT: ("environment", "host node002", ("node002",)),
    Kind.GPU: ("gpus", "host node004", ("node004",)),
    Kind.SLOW_HOST: ("hosts", "host node003", ("node003",)),
    Kind.SLOW_MEMORY: ("hosts", "host node001", ("node001",)),
    Kind.SLOW_LINK: ("links", "hosts node001 and node002", ()),
    Kind.SLOW_TIER: ("links", "rack 1", ()),
    Kind.SLOW_TRAINING: ("training", "4 host(s)", ()),
    Kind.NOT_CHECKED: ("training", "4 host(s)", ()),
}


def faulty(kind: Kind, hosts: int = 4, racks: int = 2) -> Document:
    """A run with one finding of this kind, and figures that show it."""
    check, where, drain = _WHERE[kind]
    document = cluster(hosts, racks)
    if kind not in (Kind.WRONG_RESULT, Kind.ENVIRONMENT, Kind.GPU, Kind.NOT_CHECKED):
        slow(document, where, 0.31)
    finding = Finding(
        kind, where, f"{where} gives 0.31 of what <the others> give", "look at its cable & counters", drain
    )
    document = find(document, check, finding)
    if kind is Kind.NOT_CHECKED:
        result = next(one for one in document.results if one.name == check)
        result.reason = "ddl on 4 host(s): the time limit of 240 s was exceeded"
        result.facts["flight_record"] = {
            "lines": ["3 ranks were in call 118 of ranks 0-3, allreduce of 4096 float32 elements, for 9.2 s"],
            "page": "validate/training/flight-record/flight-record.html",
        }
    return document


def many_runs(number: int = 20, regression: float = 0.7, since: int = 18) -> list[Document]:
    """A run a day; from run `since` on, training on all hosts has this share of its speed."""
    return [cluster(run=run, training=0.98 * (regression if run >= since else 1.0)) for run in range(number)]


def kinds() -> Sequence[Kind]:
    return list(Kind)
