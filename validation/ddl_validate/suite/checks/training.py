"""Training with tf_cnn_benchmarks on 1, 2, 4 … hosts, against what the measured links let one expect.

Steps with and without the exchange of gradients take turns in one run, so that a machine that drifts, or
ranks that share cores, change both alike. Expected is the speed without the exchange of the slowest rank,
slowed down by what the exchange costs on one host, and by the time that DDL's cost model predicts for the
measured links. One host is never judged so: what the exchange costs there, the run itself tells.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...common.environment import missing_modules
from ...common.models import program_words
from ...common.running import RunFailed
from ..bench import Bench, Host
from ..kinds import by_kind, kinds_of
from ..levels import scales
from ..model import CheckResult, Expectation, Figure, Finding, Kind, Status, status_of
from ..predict import description, links_before, planned, share_a_machine

TITLE = "training with tf_cnn_benchmarks, against the prediction"
SINGLE = "single"
NONE = "none"
_ELEMENTS = re.compile(r"allreduce of (\d+) (float32|float16) elements")
_BYTES = {"float32": 4, "float16": 2}
_BLOCKS = 5
_WARMUP = 2
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
_FEWEST_PEERS = 3


@dataclass(frozen=True)
class Model:
    """What is trained. batch: images a rank and step."""

    name: str
    data: str
    batch: int
    device: str

    def program(self, way: str, steps: int) -> list[str]:
        layout = "NCHW" if self.device == "gpu" else "NHWC"
        return [
            "python",
            *program_words(self.name, self.data, self.batch, steps, _WARMUP, self.device, way),
            f"--data_format={layout}",
            f"--exchange_blocks={_BLOCKS}",
            "--result_json=-",
        ]


ON_PROCESSORS = Model("resnet20", "cifar10", 32, "cpu")
ON_GPUS = Model("resnet50", "imagenet", 64, "gpu")


@dataclass(frozen=True)
class Trained:
    """One run. speed, alone: images a second of all ranks, with and without the exchange (medians of blocks
    that take turns). each: those without, by rank. size: bytes of the gradients, where the library says so.
    """

    ranks: int
    batch: int
    speed: float
    alone: float
    each: tuple[float, ...]
    size: int | None

    @property
    def step(self) -> float:
        """Seconds with the exchange."""
        return self.ranks * self.batch / self.speed

    @property
    def step_alone(self) -> float:
        """Seconds without it, of the slowest rank: the others wait for it."""
        return self.batch / min(self.each)


def trained_of(output: str) -> Trained:
    """From what tf_cnn_benchmarks printed; ValueError where there is no result in it."""
    line = next((line for line in reversed(output.splitlines()) if line.startswith("{")), "")
    try:
        result = json.loads(line)
        cost = result["exchange_cost"]
        ranks, alone = int(result["ranks"]), statistics.median(cost["images_per_sec_without"])
        last = _ELEMENTS.search(str((result.get("ddl") or {}).get("last", {}).get("call", "")))
        return Trained(
            ranks,
            int(result["batch_per_device"]),
            statistics.median(cost["images_per_sec"]),
            alone,
            tuple(float(speed) for speed in cost["rank_images_per_sec_without"]),
            int(last[1]) * _BYTES[last[2]] if last else None,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"tf_cnn_benchmarks printed no result with exchange_cost: {error!r}") from None


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    """before: results of this run's other checks, of which the measured links are taken."""
    start = time.monotonic()
    result = CheckResult("training", TITLE, Status.PASSED)
    if missing_modules(["tf_cnn_benchmarks"], bench.prefix):
        result.status = Status.SKIPPED
        result.reason = f"{bench.prefix} has no tf_cnn_benchmarks; install powerai or tf-cnn-benchmarks"
        return result
    model = ON_GPUS if bench.gpus else ON_PROCESSORS
    result.facts = {"model": model.name, "batch": model.batch}
    judge = Judge(bench, before)
    for way in bench.level.ways:
        if way == "horovod" and missing_modules(["horovod"], bench.prefix):
            result.not_judged[f"training.{way}"] = f"{bench.prefix} has no Horovod"
            continue
        _train_all(bench, model, way, judge, result)
    result.findings += _slow_hosts(result, before)
    if result.status is Status.PASSED:
        result.status = status_of(result.findings)
    result.seconds = time.monotonic() - start
    return result


def _train_all(bench: Bench, model: Model, way: str, judge: Judge, result: CheckResult) -> None:
    """One way on each number of hosts. What fails on few hosts is not tried on more."""
    numbers = [1] if way == SINGLE else scales(len(bench.hosts), bench.level.scales)
    for number in numbers:
        hosts = bench.hosts[:number]
        each = 1 if way == SINGLE else bench.ranks
        if way != SINGLE and number * each == 1:
            continue  # that is the single process
        name = f"training-{way}-{number}"
        # a process alone has no more cores than each of many
        all_cores = min(host.cores for host in bench.hosts)
        cores = max(1, all_cores // bench.ranks)
        arguments = ("-cores", str(cores)) if way == SINGLE and cores < all_cores else ()
        program = model.program("ddl" if way == SINGLE else way, bench.level.steps)
        try:
            run = trained_of(bench.start(name, program, result, hosts, each, _QUIET, arguments))
        except (RunFailed, ValueError) as error:
            why = error.line if isinstance(error, RunFailed) else str(error)
            result.status, result.reason = Status.BROKEN, f"{way} on {number} host(s): {why}"
            result.findings.append(_not_checked(way, number, why))
            return
        _figures(way, hosts, run, judge, result)
        bench.say(f"{way}, {number} host(s), {run.ranks} rank(s): {run.speed:.1f} images/s")


def _figures(way: str, hosts: Sequence[Host], run: Trained, judge: Judge, result: CheckResult) -> None:
    where, scale = f"{len(hosts)} host(s)", {"hosts": len(hosts), "ranks": run.ranks}
    command = result.commands[-1]
    if run.size is not None and run.ranks > 1:
        result.facts["gradients"] = run.size
    size = result.facts.get("gradients")
    figure = Figure(
        f"training.{way}.images_per_sec",
        where,
        run.speed,
        "images/s",
        expected=None if way == SINGLE else judge.expected(way, hosts, run, size),
        command=command,
        scale=scale,
    )
    result.figures.append(figure)
    if way == SINGLE:
        return
    efficiency = Figure(
        f"training.{way}.kept", where, run.speed / run.alone, "1", command=command, scale=scale
    )
    result.figures.append(efficiency)
    alone = replace(figure, name=f"training.{NONE}.images_per_sec", value=run.alone, expected=None)
    if alone.key in {figure.key for figure in result.figures}:
        return  # another method has already reported it
    result.figures.append(alone)
    if len(hosts) == judge.hosts:
        result.facts["per_rank"] = list(run.each)
        result.figures += _own_speeds(hosts, run, command, judge)


def _own_speeds(hosts: Sequence[Host], run: Trained, command: str, judge: Judge) -> list[Figure]:
    """Speed of each host without exchange, compared with the median of the others of its kind."""
    if len(hosts) < 2 or len(run.each) % len(hosts):
        return []
    each = len(run.each) // len(hosts)
    speeds = [sum(run.each[number * each : (number + 1) * each]) for number in range(len(hosts))]
    by_host = {host.name: speed for host, speed in zip(hosts, speeds, strict=True)}
    kinds = kinds_of({host.name: host.facts for host in hosts})
    figures = []
    for group in by_kind(by_host, kinds):
        source = "peers" if len(group) >= _FEWEST_PEERS and not judge.shared else "ideal"
        for name in group:
            others = [by_host[other] for other in group if other != name]
            usual = Expectation(statistics.median_high(others), source, judge.tolerance) if others else None
            figures.append(
                Figure(
                    "host.training",
                    f"host {name}",
                    by_host[name],
                    "images/s",
                    expected=usual,
                    command=command,
                )
            )
    return figures


class Judge:
    """What to expect of a run, from the links that were measured and from the run on one host."""

    def __init__(self, bench: Bench, before: list[CheckResult]) -> None:
        self.tolerance, self.hosts = bench.tolerance, len(bench.hosts)
        self.shared = share_a_machine(before)
        self._bench = bench
        self._links = links_before(before)
        self._exchange: dict[tuple[int, int], float] = {}
        self._one_host: dict[str, Trained] = {}

    def expected(self, way: str, hosts: Sequence[Host], run: Trained, size: int | None) -> Expectation:
        """A prediction; or the speed without exchange, which is drawn and not judged, where there is none."""
        ideal = Expectation(run.alone, "ideal", self.tolerance)
        if len(hosts) == 1:
            self._one_host[way] = run
            return ideal
        small = self._one_host.get(way)
        if small is None or size is None or self._links.link is None or self.shared:
            return ideal
        if run.step_alone > small.step_alone / (1 - self.tolerance):
            # ranks disturb each other before they exchange anything, or a host is slow: told elsewhere
            return ideal
        overhead = max(0.0, small.step - small.step_alone - self._planned(hosts[:1], size))
        step = run.step_alone + overhead + self._planned(hosts, size)
        return Expectation(run.ranks * run.batch / step, "prediction", self.tolerance)

    def _planned(self, hosts: Sequence[Host], size: int) -> float:
        key = (len(hosts), size)
        if key not in self._exchange:
            ranks = [self._bench.ranks] * len(hosts)
            racks = [host.rack for host in hosts] if self._bench.has_racks else None
            cluster = description(ranks, racks, self._links, 0.0, size)
            times = planned(self._bench.prefix, cluster, [size], self._bench.folder)
            self._exchange[key] = times[size]
        return self._exchange[key]


def _slow_hosts(result: CheckResult, before: Sequence[CheckResult]) -> list[Finding]:
    """Hosts that are slower than the others without exchanging anything, and are not named yet."""
    named = {host for result in before for finding in result.findings for host in finding.hosts}
    findings = []
    for figure in result.figures:
        host = figure.where.removeprefix("host ")
        if figure.name == "host.training" and figure.low and host not in named and figure.expected:
            findings.append(
                Finding(
                    Kind.SLOW_HOST,
                    figure.where,
                    f"{host} trains {figure.value:.1f} images/s without any exchange; the hosts' median is "
                    f"{figure.expected.value:.1f} ({figure.ratio or 0:.0%})",
                    "look for other programs on it, its clock and temperature, and limits of processor time",
                    (host,),
                    figure.name,
                )
            )
    return findings


def _not_checked(way: str, hosts: int, error: str) -> Finding:
    return Finding(
        Kind.NOT_CHECKED,
        f"{hosts} host(s)",
        f"training by {way} on {hosts} host(s) gave no result: {error}",
        "read the log; start the command by hand",
    )
