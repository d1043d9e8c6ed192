"""One measurement, all of them, and the figures made of them."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..allreduce.place import Place
from ..common.benchmark import Output, program_words, run_benchmark
from . import start
from .configurations import Configuration, baseline_of, named

SCHEMA = 2  # of the JSON document
_TORCH_PROGRAM = Path(__file__).resolve().with_name("torch_program.py")


@dataclass(frozen=True)
class Work:
    """What every configuration trains. batch: images a rank and step; steps and warmup: numbers of steps.
    blocks: pairs of blocks of steps with and without exchange after them, 0 for none. device: cpu or gpu."""

    model: str
    data: str
    batch: int
    steps: int
    warmup: int
    blocks: int = 0
    device: str = "cpu"

    def program(self, configuration: Configuration) -> list[str]:
        """The words after `python`."""
        if configuration.program == "pytorch":
            return [
                str(_TORCH_PROGRAM),
                f"--backend={configuration.sharing}",
                f"--model={self.model}",
                f"--num-batches={self.steps}",
                f"--num-warmup-batches={self.warmup}",
                f"--batch-size={self.batch}",
                f"--device={self.device}",
            ]
        # With parameter_server each process trains for itself; it says so.
        sharing = "parameter_server" if configuration.independent else configuration.sharing
        blocks = (
            [f"--exchange_blocks={self.blocks}"] if configuration.measures_communication_efficiency else []
        )
        return [
            *program_words(self.model, self.data, self.batch, self.steps, self.warmup, self.device, sharing),
            "--num_intra_threads=1",
            *blocks,
        ]


@dataclass
class Measured(Output):
    """One run, and the command that made it."""

    command: list[str] = field(default_factory=list)


def measure(
    where: Place, prefix: Path, configuration: Configuration, work: Work, log: Path, timeout: float
) -> Measured:
    """Run a configuration once. `timeout` in seconds; RunFailed says what went wrong."""
    command = start.command(where, prefix, configuration, work.program(configuration))
    processes = where.ranks if configuration.independent else 1
    output = run_benchmark(command, log, timeout, f"{configuration.title}, {work.model}", processes)
    return Measured(**vars(output), command=command)


@dataclass
class Row:
    """One configuration and model. speeds: images a second of all ranks, one of each round. alone: seconds of
    an exchange with nothing beside it, and shares: of the speed without exchange in the same run, both of the
    rounds where they were measured."""

    configuration: str
    model: str
    batch: int
    ranks: int
    speeds: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.speeds)

    @property
    def step_seconds(self) -> float:
        return self.seconds(self.median)

    def seconds(self, speed: float) -> float:
        """Seconds of a step at so many images a second."""
        return self.ranks * self.batch / speed

    def faster_than(self, other: Row) -> float:
        """How many times: median of the rounds. The two runs of a round are minutes apart, over which a
        machine drifts less than over all rounds."""
        return statistics.median(speed / its for speed, its in zip(self.speeds, other.speeds, strict=False))

    def longer_than(self, other: Row) -> float:
        """Seconds by which a step is longer than the other's: median of the rounds."""
        pairs = zip(self.speeds, other.speeds, strict=False)
        return statistics.median(self.seconds(speed) - other.seconds(its) for speed, its in pairs)


@dataclass
class Figures:
    """A row with its ratios, each the median of the rounds; None where one side was not measured.

    parallel_efficiency: speed over that without communication. communication_efficiency: the same of steps
    that take turns in one run. ddl_ahead: DDL's speed over this one's, the same program. exchange: seconds
    that a step is longer than without communication. overlap: seconds of an exchange that went on beside the
    backward pass, for configurations that overlap: the time of one alone, less `exchange`. In TensorFlow that
    is known for DDL only, whose gradients can be exchanged in one piece after the backward pass.
    """

    row: Row
    parallel_efficiency: float | None
    communication_efficiency: float | None
    ddl_ahead: float | None
    exchange: float | None
    overlap: float | None

    def as_json(self) -> dict[str, Any]:
        derived = {name: value for name, value in vars(self).items() if name != "row"}
        return {
            **asdict(self.row),
            "median": self.row.median,
            "step_seconds": self.row.step_seconds,
            **derived,
        }


def figures(rows: list[Row]) -> list[Figures]:
    """The ratios between the rows of each model, in the order given."""
    measured = {(row.configuration, row.model): row for row in rows if row.speeds}
    return [_figures(row, measured) for row in measured.values()]


def _figures(row: Row, measured: dict[tuple[str, str], Row]) -> Figures:
    configuration = named(row.configuration)
    if configuration.independent:
        return Figures(row, None, None, None, None, None)
    baseline = measured.get((baseline_of(configuration), row.model))
    plain = measured.get(("ddl", row.model))
    ddl = plain if configuration.program == "tensorflow" else measured.get(("torch-ddl", row.model))
    exchange = row.longer_than(baseline) if baseline else None
    alone = statistics.median(row.alone) if row.alone else None
    if configuration.name == "ddl-groups" and plain and baseline:
        alone = plain.longer_than(baseline)
    return Figures(
        row,
        row.faster_than(baseline) if baseline else None,
        statistics.median(row.shares) if row.shares else None,
        ddl.faster_than(row) if ddl and ddl is not row else None,
        exchange,
        alone - exchange if configuration.overlaps and alone is not None and exchange is not None else None,
    )
