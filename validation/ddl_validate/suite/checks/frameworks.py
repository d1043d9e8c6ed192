"""A short training in each framework on all hosts: it learns, and all ranks end with the same weights."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...common.environment import versions
from ...common.own_package import module_variables
from ...common.running import RunFailed
from ..bench import Bench
from ..errors import ValidateError
from ..levels import LEVELS
from ..model import CheckResult, Figure, Finding, Kind, Status, status_of
from .asking import last_json, program

TITLE = "trainings in PyTorch, Keras and the translator"

_NMT_STEP = re.compile(r"^epoch 1 step ([0-9]+)/[0-9]+  loss ([0-9.]+|nan)  ([0-9.]+) words/s", re.MULTILINE)
_NMT = ("--epochs", "1", "--hidden", "64", "--batch-per-rank", "32", "--max-length", "25", "--dropout", "0")


@dataclass(frozen=True)
class Training:
    """A short training in one framework.

    name:     in figures
    title:    for people
    packages: of the environment that it needs
    program:  its command line, after that of ddlrun
    read:     what its output says; None where it has no losses
    """

    name: str
    title: str
    packages: tuple[str, ...]
    program: Callable[[Bench], Sequence[str]]
    read: Callable[[str], dict[str, Any] | None]


def _nmt_words(bench: Bench) -> list[str]:
    ranks = bench.ranks * len(bench.hosts)
    steps = ["--steps-per-epoch", str(bench.level.steps), "--display-every", "1"]
    return [str(bench.prefix / "bin/nmt"), *_NMT, *steps, "--eval-sentences", str(ranks)]


def _nmt_read(printed: str) -> dict[str, Any] | None:
    lines = _NMT_STEP.findall(printed)
    if not lines:
        return None
    # the first steps also build graphs and plan the exchange
    rates = [float(rate) for _, _, rate in lines[len(lines) // 3 :]]
    return {"losses": [float(loss) for _, loss, _ in lines], "words_per_sec": statistics.median(rates)}


TRAININGS = (
    Training(
        "ddp",
        "PyTorch's DistributedDataParallel",
        ("pytorch", "ddl-pytorch"),
        lambda bench: program(bench, "train_ddp", str(bench.level.steps)),
        last_json,
    ),
    Training(
        "keras",
        "Keras",
        ("keras", "tensorflow", "ddl-tensorflow"),
        lambda bench: program(bench, "train_keras", str(bench.level.steps)),
        last_json,
    ),
    Training("nmt", "the translator", ("nmt", "nmt-data-de-en"), _nmt_words, _nmt_read),
)
_LONG = ("nmt",)  # not at the first level


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    """One that breaks off is a finding, and the others are made."""
    start = time.monotonic()
    result = CheckResult("frameworks", TITLE, Status.SKIPPED)
    installed = versions(bench.prefix)
    for training in TRAININGS:
        absent = [name for name in training.packages if name not in installed]
        if absent:
            result.not_judged[training.title] = f"the environment has no {', '.join(absent)}"
            continue
        if bench.level is LEVELS["smoke"] and training.name in _LONG:
            result.not_judged[training.title] = "from --level daily on"
            continue
        _train(bench, training, result)
    if result.status is Status.SKIPPED:
        result.reason = "; ".join(f"{title}: {why}" for title, why in result.not_judged.items())
    result.seconds = time.monotonic() - start
    return result


def _train(bench: Bench, training: Training, result: CheckResult) -> None:
    log = f"frameworks-{training.name}"
    try:
        printed = bench.start(log, training.program(bench), result, variables=module_variables())
        report = training.read(printed)
        if report is None:
            raise ValidateError(f"{training.title} reported no losses; log {result.logs[-1]}")
    except (RunFailed, ValidateError) as error:
        text = f"the training with {training.title} broke off: {str(error).splitlines()[0]}"
        result.findings.append(
            Finding(Kind.NOT_CHECKED, "cluster", text, f"read {result.logs[-1]}, and run its command alone")
        )
        result.status = Status.BROKEN
        return
    hosts, ranks = len(bench.hosts), bench.ranks * len(bench.hosts)
    rank_hosts = [host.name for host in bench.hosts for _ in range(bench.ranks)]
    faults = findings(training.title, report, ranks, rank_hosts)
    result.findings += faults
    if result.status is not Status.BROKEN:
        result.status = status_of(result.findings)
    scale = {"hosts": hosts, "ranks": ranks}
    command = result.commands[-1]
    speed, unit = (
        (report["words_per_sec"], "words/s")
        if "words_per_sec" in report
        else (1 / report["seconds"], "steps/s")
    )
    name = "words_per_sec" if unit == "words/s" else "steps_per_sec"
    result.figures.append(
        Figure(
            f"frameworks.{training.name}.{name}",
            f"{hosts} host(s)",
            speed,
            unit,
            command=command,
            scale=scale,
        )
    )
    result.facts[training.name] = report


def findings(title: str, report: dict[str, Any], ranks: int, rank_hosts: Sequence[str]) -> list[Finding]:
    """report: what a training printed; rank_hosts: the host of each rank."""
    losses = report["losses"]
    share = max(1, len(losses) // 3)
    first, last = statistics.mean(losses[:share]), statistics.mean(losses[-share:])
    faults = []
    if report.get("ranks", ranks) != ranks:
        faults.append(
            Finding(
                Kind.ENVIRONMENT,
                "cluster",
                f"{title}: {ranks} ranks were started, and each job had {report['ranks']}",
                "look at the MPI that the environment loads: ddlrun -doctor",
            )
        )
    if not math.isfinite(last) or last >= first:
        faults.append(
            Finding(
                Kind.WRONG_RESULT,
                "cluster",
                f"{title} does not learn: the loss was {first:.4g} in the first {share} steps, and is "
                f"{last:.4g} in the last",
                "train on fewer hosts (-exclude) to find the one with which it does not",
            )
        )
    marks = report.get("marks", [])
    usual = Counter(marks).most_common(1)[0][0] if marks else None
    odd = [rank for rank, mark in enumerate(marks) if mark != usual]
    if odd:
        hosts = tuple(dict.fromkeys(rank_hosts[rank] for rank in odd)) if len(odd) * 2 < len(marks) else ()
        where = f"host {hosts[0]}" if len(hosts) == 1 else "cluster"
        listed = ", ".join(f"{rank} on {rank_hosts[rank]}" for rank in odd)
        faults.append(
            Finding(
                Kind.WRONG_RESULT,
                where,
                f"{title}: the weights of all ranks should be the same, bit by bit; those of rank {listed} "
                "are others",
                "look for errors of memory (edac-util, mcelog), and run the check sums",
                hosts,
            )
        )
    return faults
