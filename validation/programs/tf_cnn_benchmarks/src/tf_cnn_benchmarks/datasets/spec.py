"""What the benchmark asks of a data set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Shard:
    """This process's part of the work: rank `rank` of `size`, `batch` images a step."""

    rank: int
    size: int
    batch: int


@dataclass(frozen=True)
class Batch:
    """Graph tensors of a process's next batch and what starts them.

    `images` is float32 NHWC, `labels` int32; a label of -1 fills up an evaluation's last batch and counts
    for nothing. `initializer` (None: nothing to start) is run once with `feed`, plus the step to start at
    for `start_step`.
    """

    images: Any
    labels: Any
    initializer: Any = None
    start_step: Any = None
    feed: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class InputOptions:
    """What flags say about input; the names are those of the flags without `datasets_`, see `params.py`.

    prefetch: batches made ahead, 0 for none. private_threads: None leaves the number to the program.
    """

    input_preprocessor: str = "default"
    resize_method: str = "bilinear"
    distortions: bool = False
    distort_color_in_yiq: bool = True
    fuse_decode_and_crop: bool = True
    ml_perf: bool = False
    prefetch: int = 1
    private_threads: int | None = None
    use_caching: bool = False
    repeat_cached_sample: bool = False
    cycle_length: int | None = None
    sloppy: bool = False
    interleave_prefetch: int | None = None
    batch_group_size: int = 1


DEFAULT_OPTIONS = InputOptions()


class Data(Protocol):
    """One data set. `examples` is the size of an epoch, for `training` or for evaluation."""

    classes: int
    channels: int
    synthetic: bool
    title: str

    def examples(self, *, training: bool) -> int: ...

    def batches(
        self,
        shard: Shard,
        image_size: int,
        *,
        training: bool,
        seed: int,
        threads: int,
        options: InputOptions = DEFAULT_OPTIONS,
    ) -> Batch:
        """Training: without end, shuffled; the ranks' batches of a step are disjoint. Evaluation: each
        example once over all ranks, in order, then OutOfRangeError."""
        ...
