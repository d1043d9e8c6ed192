"""A training with tf_cnn_benchmarks, or with a program that prints its speed alike: its words, one run, and
what it printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .running import RunFailed, run_program, tail_of

# horovodrun marks the lines with the rank.
_START = r"^(?:\[[^]]*\]<stdout>: ?)?"
TOTAL = re.compile(_START + r"total images/sec: ([0-9.]+)$", re.MULTILINE)
_STEP = re.compile(r"^(\d+)\timages/sec: ([0-9.]+) \+/- ([0-9.]+) \(jitter = ([0-9.]+)\)\t([-+0-9.einfa]+)")
_EFFICIENCY = re.compile(_START + r"speed kept with exchange: ([0-9.]+) ", re.MULTILINE)
_ALONE = re.compile(r"^exchange alone sec: ([0-9.]+)$", re.MULTILINE)


def program_words(
    model: str, data: str, batch: int, steps: int, warmup: int, device: str, variable_update: str
) -> list[str]:
    """The words after `python`. batch: images a rank and step; steps and warmup: numbers of steps."""
    return [
        *("-m", "tf_cnn_benchmarks"),
        f"--model={model}",
        f"--data_name={data}",
        f"--batch_size={batch}",
        f"--num_batches={steps}",
        f"--num_warmup_batches={warmup}",
        f"--device={device}",
        f"--variable_update={variable_update}",
    ]


@dataclass
class Step:
    """One printed step: images per second so far (mean, standard error, jitter) and the loss."""

    step: int
    images_per_sec: float
    uncertainty: float
    jitter: float
    loss: float


@dataclass
class Output:
    """What one run printed.

    speed: images a second of all ranks.
    steps: the printed ones, of one rank.
    alone: seconds of one exchange of all gradients with nothing beside it, where the program measures that.
    communication_efficiency: speed over that of steps without exchange in the same run, likewise.
    """

    speed: float
    steps: list[Step]
    alone: float | None = None
    communication_efficiency: float | None = None


def read_output(text: str, processes: int = 1) -> Output:
    """Parse what a run printed, in which each of so many processes gives a total of its own.

    ValueError where there are fewer or more of them.
    """
    totals = [float(value) for value in TOTAL.findall(text)]
    if len(totals) != processes:
        raise ValueError(f"{len(totals)} line(s) 'total images/sec:' where there should be {processes}")
    steps = []
    for line in text.splitlines():
        if match := _STEP.match(line):
            number, *figures = match.groups()
            steps.append(Step(int(number), *map(float, figures)))
    alone, efficiency = _ALONE.search(text), _EFFICIENCY.search(text)
    return Output(
        sum(totals),
        steps,
        float(alone[1]) if alone else None,
        float(efficiency[1]) if efficiency else None,
    )


def run_benchmark(
    command: list[str],
    log: Path,
    timeout: float,
    title: str,
    processes: int = 1,
    progress: Callable[[str, float], None] | None = None,
) -> Output:
    """Run a command once and read its output; see run_program and read_output.

    RunFailed where it fails, exceeds its time or prints no total; the text has the log and its last lines.
    """
    text = run_program(command, log, timeout, title, progress=progress)
    try:
        return read_output(text, processes)
    except ValueError as error:
        raise RunFailed(f"{title}: {error}; log {log}; its last lines:\n{tail_of(text)}") from None
