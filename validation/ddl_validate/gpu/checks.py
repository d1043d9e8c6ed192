"""What is checked, in which order, and what the verdicts mean."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..common.bandwidth import algbw, busbw
from ..common.own_package import module_command, module_variables
from ..common.running import run_text
from .driver import LEAST_RELEASE, LEAST_VERSION
from .errors import GpuError
from .facts import Facts
from .start import Starter

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
KIB, MIB = 1 << 10, 1 << 20
#: The specification's: of what the link between host and device carries both ways.
LEAST_STAGED_SHARE = 0.85
LEAST_HIDDEN_SHARE = 0.5


class NotRun(Exception):
    """A check that cannot be made here; the text says why."""


@dataclass(frozen=True)
class Effort:
    """How much. block: bytes of a copy that is timed. sizes: of all-reduces that are timed. peer_sizes: of
    the comparison with NCCL, as ddl-bench reads them."""

    block: int = 64 * MIB
    repetitions: int = 9
    sizes: tuple[int, ...] = (MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
    overlap_bytes: int = 64 * MIB
    peer_sizes: str = "4K-1G"
    peer_budget: float = 1.0
    peer_rounds: int = 3
    batches: int = 40
    width: int = 64

    @property
    def copies(self) -> dict[str, int]:
        """Settings of copies that are timed."""
        return {"block": self.block, "repetitions": self.repetitions}


QUICK = Effort(MIB, 3, (64 * KIB, MIB), MIB, "4K,1M", 0.1, 1, 10, 16)


@dataclass
class Result:
    """One check. figures: what was measured; empty where it was not run."""

    name: str
    title: str
    verdict: str = NOT_RUN
    reason: str = ""
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """What the checks need. ranks: numbers of them that share one GPU. least_staged, least_hidden: shares
    from which on the measured figures pass."""

    starter: Starter
    facts: Facts
    effort: Effort
    ranks: tuple[int, ...]
    least_staged: float
    least_hidden: float

    @property
    def prefix(self) -> Path:
        return self.starter.prefix

    @property
    def limit(self) -> float:
        return self.starter.limit

    def module(
        self,
        program: str,
        ranks: int,
        settings: Mapping[str, Any],
        options: str = "",
        devices: int = 1,
        way: str = "",
        variables: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        """A program of ranks; devices: how many GPUs they share; way: how they exchange, for logs."""
        title = f"{program}{way}-{ranks}-on-{devices}"
        parameters = {"devices": devices, **settings}
        return self.starter.module("gpu.ranks", [program], parameters, ranks, title, options, variables)

    def copy_rates(self) -> dict[str, float]:
        """Bytes a second of copies by one process."""
        (report,) = self.module("copies", 1, self.effort.copies)
        rates: dict[str, float] = report["rates"]
        return rates


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise GpuError(text)


def driver(bench: Bench) -> dict[str, Any]:
    facts = bench.facts
    if facts.driver is None or not facts.gpus:
        raise NotRun(facts.problem)
    _require(
        facts.driver >= LEAST_VERSION,
        f"the driver supports CUDA {facts.driver_text}, and DDL needs 12.0: update it to {LEAST_RELEASE} or "
        "later",
    )
    return {
        "cuda": facts.driver_text,
        "gpus": facts.gpus,
        "nccl": facts.nccl,
        "without_nccl": facts.without_nccl,
    }


def copies(bench: Bench) -> dict[str, Any]:
    return {"bytes_per_second": bench.copy_rates(), "block": bench.effort.block}


def _wrong(reports: list[dict[str, Any]]) -> list[str]:
    return [f"rank {rank}: {text}" for rank, report in enumerate(reports) for text in report["wrong"]]


def _rows(
    report: dict[str, Any], ranks: int, names: tuple[str, str], buffers: int, most: float
) -> list[dict[str, Any]]:
    """Times by size, then bytes a second and their share of the most that are possible. names: of these two;
    buffers: how many times the bytes of a rank's buffer are moved."""
    return [
        {
            "bytes": size,
            "median": seconds,
            "algbw": algbw(size, seconds),
            "busbw": busbw(size, seconds, ranks),
            names[0]: buffers * size / seconds,
            names[1]: buffers * size / seconds / most,
        }
        for size, seconds in ((row["bytes"], row["median"]) for row in report["rows"])
    ]


#: Without NVRTC, ranks that share a GPU stage their buffers in the host's memory.
_STAGED = {"DDL_NVRTC_LIBRARY": "none"}


def _values(bench: Bench, ranks: int, devices: int, ipc: bool = False) -> dict[str, Any]:
    if ipc:
        reports = bench.module("values", ranks, {}, "-mode b", devices, "-ipc")
    else:
        reports = bench.module("values", ranks, {}, devices=devices, variables=_STAGED)
    wrong = _wrong(reports)
    _require(not wrong, f"{ranks} ranks: {len(wrong)} wrong: {'; '.join(wrong[:5])}")
    first, device = reports[0], reports[0]["device"]
    digests = first["digests"].items()
    unequal = [name for name, digest in digests if any(o["digests"][name] != digest for o in reports)]
    _require(not unequal, f"{ranks} ranks have different bits: {', '.join(unequal[:5])}")
    return {
        "ranks": ranks,
        "gpus": devices,
        **{name: first[name] for name in ("cases", "types", "ops")},
        "nccl": device["nccl"],
        "why_not_nccl": device["note"],
        "ipc": device["ipc"],
        "staging_pinned": device["staging_pinned"],
        "ddl": first["version"],
    }


def values(bench: Bench) -> dict[str, Any]:
    return {"runs": [_values(bench, ranks, 1) for ranks in bench.ranks]}


def order(bench: Bench) -> dict[str, Any]:
    reports = bench.module("order", 2, {})
    wrong = _wrong(reports)
    _require(not wrong, "; ".join(wrong))
    return {"ranks": 2, "cases": reports[0]["cases"]}


def staged(bench: Bench) -> dict[str, Any]:
    """Every rank's buffer goes to the host and the result comes back: P ranks carry P times its bytes through
    the one link, each way."""
    effort, ranks = bench.effort, bench.ranks[0]
    rates = bench.copy_rates()
    report = bench.module("staged", ranks, {"sizes": effort.sizes, **effort.copies}, variables=_STAGED)[0]
    rows = _rows(report, ranks, ("each_way", "share_of_link"), ranks, rates["both"])
    figures = {
        "ranks": ranks,
        "link_bytes_per_second": rates,
        "link_by_all_ranks": report["rates"],
        "rows": rows,
        "least_share": bench.least_staged,
        "staging_pinned": report["device"]["staging_pinned"],
    }
    share = rows[-1]["share_of_link"]
    if share < bench.least_staged:
        raise Missed(
            f"the largest all-reduce used {share:.2f} of what the link carries both ways at once; at least "
            f"{bench.least_staged:g} is required",
            figures,
        )
    return figures


class Missed(GpuError):
    """A figure is below its threshold: the check failed, and the figures are reported."""

    def __init__(self, text: str, figures: dict[str, Any]) -> None:
        super().__init__(text)
        self.figures = figures


def ipc_copies(bench: Bench) -> dict[str, Any]:
    effort, within = bench.effort, bench.copy_rates()["within"]
    rate = bench.module("ipc", 2, effort.copies)[0]["rate"]
    return {"bytes_per_second": rate, "within_one_process": within, "block": effort.block}


def ipc(bench: Bench) -> dict[str, Any]:
    """Values first, then times, beside copies within the GPU: no exchange on it moves more than these."""
    runs = [_values(bench, ranks, 1, ipc=True) for ranks in bench.ranks]
    for run in runs:
        _require(run["ipc"], f"DDL does not use CUDA IPC: {run['why_not_nccl']}")
    ranks, effort = bench.ranks[0], bench.effort
    settings = {"sizes": effort.sizes, **effort.copies}
    report = bench.module("staged", ranks, settings, "-mode b", way="-ipc")[0]
    within = report["rates"]["within"]
    # Read and written: the input of other ranks' parts, the reduction of each part, and the result.
    moved = 2 * (ranks - 1) + (ranks + 1) + 2 * ranks
    # a copy reads and writes each byte
    rows = _rows(report, ranks, ("moved", "share_of_copies"), moved, 2 * within)
    return {"runs": runs, "ranks": ranks, "rows": rows, "copies_by_all_ranks": within}


def overlap(bench: Bench) -> dict[str, Any]:
    effort = bench.effort
    with tempfile.TemporaryDirectory(prefix="timeline.", dir=bench.starter.folder) as folder:
        file = Path(folder) / "t.json"
        settings = {"bytes": effort.overlap_bytes, "block": max(effort.block // 4, 64 * KIB)}
        reports = bench.module("overlap", 2, settings, f"-timeline {file}")
        calls = call_spans(file.with_name("t.rank0.json").read_text())
    rounds = reports[0]["rounds"]
    longest = max(
        (_shown(turn["spans"], calls) for turn in rounds), key=lambda spans: spans["seconds_together"]
    )
    hidden = [
        (turn["call"] + turn["copies"] - turn["together"]) / min(turn["call"], turn["copies"])
        for turn in rounds
    ]
    figures = {
        "bytes": reports[0]["bytes"],
        "copies": reports[0]["copies"],
        "rounds": [{name: turn[name] for name in ("call", "copies", "together")} for turn in rounds],
        "hidden_share": statistics.median(hidden),
        "least_hidden_share": bench.least_hidden,
        **longest,
    }
    if figures["seconds_together"] <= 0:
        raise Missed("the timeline shows no moment at which a call and a copy ran at once", figures)
    if figures["hidden_share"] < bench.least_hidden:
        raise Missed(
            f"{figures['hidden_share']:.2f} of the shorter of both was hidden behind the other; at least "
            f"{bench.least_hidden:g} is required",
            figures,
        )
    return figures


def call_spans(text: str) -> list[tuple[str, float, float]]:
    """The calls of a timeline of DDL: name, begin and end by the system's clock in seconds."""
    spans = []
    for line in text.splitlines():
        stripped = line.strip().rstrip(",")
        if not stripped.startswith("{"):
            continue
        event = json.loads(stripped)
        if event.get("ph") == "X" and event["tid"] == 0:
            spans.append((event["name"], event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6))
    return spans


def _shown(copied: list[tuple[float, float]], calls: list[tuple[str, float, float]]) -> dict[str, Any]:
    """The part of the timeline around these copies, which follow each other without gaps; from 0."""
    begin, end = copied[0][0], copied[-1][1]
    within = [(name, low, high) for name, low, high in calls if high > begin and low < end]
    return {
        "timeline": {
            "copies": [[low - begin, high - begin] for low, high in copied],
            "calls": [[name, low - begin, high - begin] for name, low, high in within],
        },
        "seconds_together": sum(min(high, end) - max(low, begin) for _, low, high in within),
    }


def several_gpus(bench: Bench) -> dict[str, Any]:
    number = len(bench.facts.gpus)
    if number < 2:
        raise NotRun("the host has one GPU")
    values = _values(bench, number, number)
    if bench.facts.nccl and not values["nccl"]:
        raise GpuError(f"NCCL is there, and DDL does not use it: {values['why_not_nccl']}")
    return values


def against_nccl(bench: Bench) -> dict[str, Any]:
    number = len(bench.facts.gpus)
    if number < 2:
        raise NotRun("the host has one GPU, and NCCL wants one for each rank")
    if not bench.facts.nccl:
        raise NotRun(bench.facts.without_nccl)
    effort = bench.effort
    output = bench.starter.folder / "against-nccl"
    arguments = [
        "run",
        "--device",
        "gpu",
        "--sizes",
        effort.peer_sizes,
        "--budget",
        f"{effort.peer_budget:g}",
    ]
    arguments += ["--rounds", str(effort.peer_rounds), "--fresh", "--json", "--output", str(output)]
    arguments += ["--prefix", f"ddl={bench.prefix}", "--prefix", f"nccl={bench.prefix}"]
    done = _run(bench, module_command(bench.prefix, "allreduce", *arguments))
    _require(done.returncode == 0, f"ddl-bench: exit code {done.returncode}: {done.stderr.strip()[-800:]}")
    document = json.loads(done.stdout)
    names = ("peer", "bytes", "median", "algbw", "busbw")
    (scenario,) = document["scenarios"]
    return {
        "ranks": scenario["ranks"],
        "rounds": document["effort"]["rounds"],
        "cells": [{name: cell[name] for name in names} for cell in scenario["cells"]],
    }


def _run(bench: Bench, command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return run_text(command, bench.limit, module_variables())
    except subprocess.TimeoutExpired:
        raise GpuError(f"{' '.join(command[:4])} … took more than {bench.limit:g} s") from None


_SEES = {
    "torch": "import torch; print(torch.cuda.is_available() and torch.cuda.device_count() > 0)",
    "tensorflow": "import tensorflow as tf; print(bool(tf.config.list_physical_devices('GPU')))",
}


def _sees_gpu(bench: Bench, framework: str) -> None:
    """NotRun where a framework of the environment is missing, or computes on processors alone."""
    done = _run(bench, [str(bench.prefix / "bin" / "python"), "-P", "-c", _SEES[framework]])
    if f"No module named '{framework}'" in done.stderr:
        raise NotRun(f"{framework} is not installed in this environment")
    _require(done.returncode == 0, f"{framework} does not start: {done.stderr.strip()[-500:]}")
    if done.stdout.split()[-1:] != ["True"]:
        raise NotRun(f"{framework} sees no GPU: it is built for processors, or the driver is not visible")


def _training_ranks(bench: Bench) -> int:
    return max(len(bench.facts.gpus), 2)


def torch_training(bench: Bench) -> dict[str, Any]:
    _sees_gpu(bench, "torch")
    effort, ranks = bench.effort, _training_ranks(bench)
    settings = {"device": "gpu", "width": effort.width, "batch": 64, "steps": effort.batches, "blocks": 6}
    reports = bench.starter.module("gpu.torch_steps", [], settings, ranks, "torch")
    _require(
        all(report["agreed"] for report in reports), "the ranks' parameters differ after steps with exchange"
    )
    return {"ranks": ranks, "gpus": len(bench.facts.gpus), **reports[0]}


def tensorflow_training(bench: Bench) -> dict[str, Any]:
    _sees_gpu(bench, "tensorflow")
    ranks, effort = _training_ranks(bench), bench.effort
    with tempfile.TemporaryDirectory(prefix="tf.", dir=bench.starter.folder) as folder:
        result = Path(folder) / "result.json"
        flags = ["--device=gpu", "--model=resnet50", "--batch_size=32", f"--num_batches={effort.batches}"]
        flags += ["--variable_update=ddl", "--exchange_blocks=6", f"--result_json={result}"]
        command = [str(bench.prefix / "bin" / "python"), "-P", "-m", "tf_cnn_benchmarks", *flags]
        bench.starter.program(command, ranks, "tf_cnn_benchmarks")
        result_line = json.loads(result.read_text().splitlines()[-1])
    return {
        "ranks": ranks,
        "gpus": len(bench.facts.gpus),
        "images_per_second": result_line["images_per_sec"],
        "kept": result_line["exchange_cost"]["kept"],
        "quartiles": result_line["exchange_cost"]["quartiles"],
    }


CHECKS: dict[str, tuple[str, Callable[[Bench], dict[str, Any]]]] = {
    "driver": ("Driver and GPUs", driver),
    "copies": ("Copies between host and GPU, and within it", copies),
    "values": ("Every type and reduction, several ranks on one GPU", values),
    "order": ("Calls in the order of streams", order),
    "staged": ("Bandwidth by way of the host's memory", staged),
    "ipc-copies": ("Copies between processes on one GPU", ipc_copies),
    "ipc": ("DDL between processes on one GPU, without the host", ipc),
    "overlap": ("A call beside work of the GPU", overlap),
    "gpus": ("Every type and reduction, a rank on each GPU", several_gpus),
    "nccl": ("DDL beside NCCL alone", against_nccl),
    "torch": ("PyTorch: steps with and without exchange", torch_training),
    "tensorflow": ("tf_cnn_benchmarks: steps with and without exchange", tensorflow_training),
}


def run_all(bench: Bench, names: list[str]) -> Iterator[Result]:
    """Make the checks, one after the other. Without a GPU, all of them are not run."""
    broken: str | None = None
    for name in dict.fromkeys(["driver", *names]):
        title, check = CHECKS[name]
        result = Result(name, title)
        begun = time.monotonic()
        if broken is not None:
            result.reason = broken
        else:
            try:
                result.figures = check(bench)
                result.verdict = PASSED
            except NotRun as error:
                result.reason = str(error)
            except GpuError as error:
                result.verdict, result.reason = FAILED, str(error)
                result.figures = error.figures if isinstance(error, Missed) else {}
        result.seconds = round(time.monotonic() - begun, 3)
        if name == "driver" and result.verdict != PASSED:
            broken = "no GPU" if result.verdict == NOT_RUN else "the driver is too old"
        yield result
