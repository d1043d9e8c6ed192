"""The output lines that users' scripts parse, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.exchange_cost import ExchangeCost
from tf_cnn_benchmarks.params import Params
from tf_cnn_benchmarks.statistics import Speed, speed

RULE = "-" * 64
RESUMING = "Resuming training"
REDUCED = ("replicated", "distributed_all_reduce", "collective_all_reduce")
"""The --variable_update whose header names --all_reduce_spec."""
JOB_TITLES = {"ps": "PS hosts:", "worker": "Workers:", "controller": "Controller:"}


def setup_lines(
    *,
    tensorflow: str,
    model: str,
    dataset: str,
    mode: str,
    single_session: bool,
    global_batch: int,
    device_batch: int,
    batch_group: int,
    num_batches: int,
    num_epochs: float,
    devices: list[str],
    data_format: str,
    rewriter_config: str | None,
    optimizer: str,
    variables: str,
    all_reduce: str | None,
    horovod_device: str | None,
    numa_bind: bool,
    cluster: Mapping[str, Sequence[str]] | None,
    sync: bool,
) -> list[str]:
    """What is about to be measured. `cluster` has the addresses of each job's tasks."""
    return [
        f"TensorFlow:  {'.'.join(tensorflow.split('.')[:2])}",
        f"Model:       {model}",
        f"Dataset:     {dataset}",
        f"Mode:        {mode}",
        f"SingleSess:  {single_session}",
        f"Batch size:  {global_batch} global",
        f"             {device_batch} per device",
        # Spelt as in the program whose lines these are.
        *([f"             {batch_group} batches per prepocessing group"] if batch_group > 1 else []),
        f"Num batches: {num_batches}",
        f"Num epochs:  {num_epochs:.2f}",
        f"Devices:     {devices}",
        f"NUMA bind:   {numa_bind}",
        f"Data format: {data_format}",
        *([f"RewriterConfig: {rewriter_config}"] if rewriter_config else []),
        f"Optimizer:   {optimizer}",
        f"Variables:   {variables}",
        *([f"AllReduce:   {all_reduce}"] if variables in REDUCED else []),
        *(f"{JOB_TITLES[job]:13}{','.join(tasks)}" for job, tasks in (cluster or {}).items()),
        *([f"Sync:        {sync}"] if cluster else []),
        *([f"Horovod on:  {horovod_device}"] if horovod_device else []),
        "=" * 10,
    ]


def header_line(params: Params) -> str:
    columns = ["Step", "Img/sec", params.loss_type_to_report]
    return "\t".join(columns + (["top_1_accuracy", "top_5_accuracy"] if _shows_accuracy(params) else []))


def step_line(params: Params, step: int, speed: Speed, measures: Any) -> str:
    """`measures`: [loss, top-1, top-5, images]. A forward pass has no loss; its column stays."""
    loss = 0.0 if params.forward_only else float(measures[0])
    text = (
        f"{step}\timages/sec: {speed.mean:.1f} +/- {speed.uncertainty:.1f} (jitter = {speed.jitter:.1f})"
        f"\t{loss:.3f}"
    )
    return text if (both := accuracies(params, measures)) is None else f"{text}\t{both[0]:.3f}\t{both[1]:.3f}"


def accuracies(params: Params, measures: Any) -> tuple[float, float] | None:
    """Top-1 and top-5, where step lines show them."""
    _, top1, top5, images = (float(x) for x in measures)
    return (top1 / images, top5 / images) if _shows_accuracy(params) else None


def _shows_accuracy(params: Params) -> bool:
    return params.print_training_accuracy or params.forward_only


def evaluation_line(step: int, *, final: bool) -> str:
    return f"Running {'final ' if final else ''}evaluation at global_step {step}"


def stop_line(goal: float) -> str:
    return f"Stopping, as eval accuracy at least {goal} was reached"


def accuracy_line(top1: float, top5: float, examples: int) -> str:
    return f"Accuracy @ 1 = {top1:.4f} Accuracy @ 5 = {top5:.4f} [{examples} examples]"


def total_lines(images_per_sec: float) -> list[str]:
    return [RULE, f"total images/sec: {images_per_sec:.2f}", RULE]


def end_lines(params: Params, images_per_sec: float) -> list[str]:
    """After the last step."""
    return [*total_lines(images_per_sec), *(["Done with training"] if params.evaluated else [])]


def measured(params: Params, times: Sequence[float], batch: int, measures: Any) -> dict[str, float]:
    """For --result_json: this rank's speed, and what the last step measured, if there was a step."""
    results: dict[str, float] = {}
    if times:
        estimate = speed(list(times), batch, params.display_perf_ewma)
        results["rank_images_per_sec"] = estimate.mean
        results["rank_images_per_sec_uncertainty"] = estimate.uncertainty
        results["rank_images_per_sec_jitter"] = estimate.jitter
    if measures is not None:
        loss, top1, top5, images = np.asarray(measures, np.float64).tolist()
        results["base_loss" if params.forward_only else params.loss_type_to_report] = loss
        results["top_1_accuracy"] = top1 / images
        results["top_5_accuracy"] = top5 / images
    return results


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
