"""What is trained: networks on synthetic images, LeNet on handwritten digits, examples of frameworks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..common.models import cpu_batch

Kind = Literal["synthetic", "digits", "examples"]

#: Timed steps of a network on this machine: a run lasts a minute or so on one core.
STEPS = {"resnet20": 200, "alexnet": 20, "resnet50": 20, "vgg16": 10}
#: Images a rank and step, and timed steps. On slow links a step lasts as long as the exchange: few of both.
ON_SLOW_LINKS = {"alexnet": (4, 4), "vgg16": (1, 3)}
OTHER_STEPS = 10
#: Pairs of blocks of steps with and without exchange. On slow links the rounds say the same.
BLOCKS = 24
#: Limit of one run in seconds.
TIMEOUTS: dict[Kind, float] = {"synthetic": 1200, "digits": 600, "examples": 300}


@dataclass(frozen=True)
class Work:
    """What every method trains.

    kind:   synthetic images show the speed alone; digits are trained to an accuracy; an example has both in
            itself
    name:   a model of tf_cnn_benchmarks, or the kind
    batch:  images a rank and step
    cores:  of a rank
    device: cpu or gpu
    steps:  timed ones, of synthetic images
    warmup: steps before them
    blocks: pairs of blocks of steps with and without exchange after them
    epochs: passes over the digits, by all ranks together
    rate:   the learning rate of an update from all ranks' gradients
    """

    kind: Kind
    name: str
    batch: int = 0
    cores: int = 1
    device: str = "cpu"
    steps: int = 0
    warmup: int = 0
    blocks: int = 0
    epochs: int = 0
    rate: float = 0.0

    @property
    def text(self) -> str:
        if self.kind == "examples":
            return "Examples of the frameworks: handwritten digits"
        if self.kind == "digits":
            return f"LeNet on handwritten digits, batch {self.batch} a rank, {self.epochs} epochs"
        where = "a GPU" if self.device == "gpu" else f"{self.cores} core(s)"
        return f"{self.name} on synthetic images, batch {self.batch} and {where} a rank"


def amount_of(model: str, *, slow_links: bool) -> tuple[int, int, int, int]:
    """Images a rank and step, timed steps, steps before them, and blocks, of synthetic images."""
    if slow_links:
        batch, steps = ON_SLOW_LINKS.get(model, (4, OTHER_STEPS))
        return batch, steps, 2, 0
    return cpu_batch(model), STEPS.get(model, OTHER_STEPS), 10, BLOCKS
