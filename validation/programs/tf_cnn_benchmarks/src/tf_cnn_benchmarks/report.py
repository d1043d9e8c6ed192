"""The output lines that users' scripts parse, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.exchange_cost import ExchangeCost
from tf_cnn_benchmarks.statistics import Speed

RULE = "-" * 64
JOB_TITLES = {"ps": "PS hosts:", "worker": "Workers:", "controller": "Controller:"}


def setup_lines(
    *,
    tensorflow: str,
    model: str,
    dataset: str,
    mode: str,
    global_batch: int,
    device_batch: int,
    num_batches: int,
    num_epochs: float,
    devices: list[str],
    data_format: str,
    optimizer: str,
    variables: str,
    all_reduce: str | None,
    numa_bind: bool,
    cluster: Mapping[str, Sequence[str]] | None = None,
    sync: bool | None = None,
) -> list[str]:
    """What is about to be measured. `cluster` has the addresses of each job's tasks."""
    lines = [
        f"TensorFlow:  {'.'.join(tensorflow.split('.')[:2])}",
        f"Model:       {model}",
        f"Dataset:     {dataset}",
        f"Mode:        {mode}",
        "SingleSess:  False",
        f"Batch size:  {global_batch} global",
        f"             {device_batch} per device",
        f"Num batches: {num_batches}",
        f"Num epochs:  {num_epochs:.2f}",
        f"Devices:     {devices}",
        f"NUMA bind:   {numa_bind}",
        f"Data format: {data_format}",
        f"Optimizer:   {optimizer}",
        f"Variables:   {variables}",
    ]
    if all_reduce:
        lines.append(f"AllReduce:   {all_reduce}")
    if cluster:
        lines += [f"{JOB_TITLES[job]:13}{','.join(tasks)}" for job, tasks in cluster.items()]
        if sync is not None:
            lines.append(f"Sync:        {sync}")
    return [*lines, "=" * 10]


def header_line(*, loss: str, accuracy: bool) -> str:
    columns = ["Step", "Img/sec", loss]
    return "\t".join(columns + (["top_1_accuracy", "top_5_accuracy"] if accuracy else []))


def step_line(step: int, speed: Speed, loss: float, accuracy: tuple[float, float] | None) -> str:
    """`accuracy`: top-1 and top-5 as fractions."""
    text = (
        f"{step}\timages/sec: {speed.mean:.1f} +/- {speed.uncertainty:.1f} (jitter = {speed.jitter:.1f})"
        f"\t{loss:.3f}"
    )
    return text if accuracy is None else f"{text}\t{accuracy[0]:.3f}\t{accuracy[1]:.3f}"


def accuracy_line(top1: float, top5: float, examples: int) -> str:
    return f"Accuracy @ 1 = {top1:.4f} Accuracy @ 5 = {top5:.4f} [{examples} examples]"


def total_lines(images_per_sec: float) -> list[str]:
    return [RULE, f"total images/sec: {images_per_sec:.2f}", RULE]


def exchange_line(cost: ExchangeCost) -> str:
    first, third = cost.quartiles
    return (
        f"speed kept with exchange: {cost.efficiency:.3f} (median of {len(cost.shares)} pairs of blocks, "
        f"quartiles {first:.3f} to {third:.3f})"
    )


def write_json(path: Path, result: dict[str, Any]) -> None:
    """Appends one line; BenchmarkError when the file cannot be written. `-` is standard output."""
    if str(path) == "-":
        print(json.dumps(result, sort_keys=True), flush=True)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result, sort_keys=True) + "\n")
    except OSError as error:
        raise BenchmarkError(f"cannot write --result_json={path}: {error.strerror}; name another") from None


class Printer:
    """Prints on the one rank that reports; each line at once, for pipes and log files."""

    def __init__(self, stream: TextIO, *, silent: bool) -> None:
        self._stream = stream
        self._silent = silent

    def __call__(self, *lines: str) -> None:
        if not self._silent:
            for line in lines:
                print(line, file=self._stream)
            self._stream.flush()
