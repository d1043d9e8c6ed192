"""ImageNet from TFRecord shards `train-*` and `validation-*` of TFExamples with `image/encoded` (JPEG or PNG)
and `image/class/label` (1 to 1000; 0 is background)."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.datasets.imagenet_images import parse
from tf_cnn_benchmarks.datasets.pipeline import ahead
from tf_cnn_benchmarks.datasets.sizes import IMAGENET
from tf_cnn_benchmarks.datasets.spec import DEFAULT_OPTIONS, Batch, InputOptions, Shard
from tf_cnn_benchmarks.errors import BenchmarkError

v1 = tf.compat.v1

OFFICIAL_SHARDS = {"train": 1024, "validation": 128}
SHUFFLE_RECORDS = 1024
"""About 110 MB of encoded images; the shards of the usual conversion are shuffled already."""
FILES_AT_ONCE = 8


def find_shards(folder: Path, *, training: bool) -> list[Path]:
    """The shards in order of name; BenchmarkError when there is none."""
    prefix = "train" if training else "validation"
    shards = sorted(path for path in folder.glob(f"{prefix}-*") if path.is_file())
    if not shards:
        raise BenchmarkError(
            f"--data_dir={folder} holds no TFRecord shards named {prefix}-* (such as {prefix}-00000-of-01024)"
        )
    return shards


def count_records(path: Path) -> int:
    """The number of records of one TFRecord file, from their lengths alone; BenchmarkError when cut off.

    A record is its length (8 bytes), that one's checksum (4), the data and its checksum (4).
    """
    count, place, end = 0, 0, os.path.getsize(path)
    with path.open("rb") as file:
        while place < end:
            file.seek(place)
            header = file.read(8)
            place += 16 + struct.unpack("<Q", header)[0] if len(header) == 8 else end + 1
            if place > end:
                raise BenchmarkError(
                    f"{path} is truncated or not a TFRecord file (record {count}); create it again"
                )
            count += 1
    return count


class Imagenet:
    """Real images in ImageNet's form, of any number."""

    classes = IMAGENET.classes
    channels = IMAGENET.channels
    synthetic = False
    title = "imagenet"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: dict[bool, int] = {}

    def examples(self, *, training: bool) -> int:
        if training not in self._counts:
            shards = find_shards(self._folder, training=training)
            official = OFFICIAL_SHARDS["train" if training else "validation"]
            if len(shards) == official and shards[0].name.endswith(f"-of-{official:05d}"):
                # The whole of ImageNet: reading a million record headers would delay the start by minutes.
                count = IMAGENET.train if training else IMAGENET.validation
            else:
                count = sum(count_records(shard) for shard in shards)
            if count == 0:
                raise BenchmarkError(f"the shards in --data_dir={self._folder} hold no image")
            self._counts[training] = count
        return self._counts[training]

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
        start = v1.placeholder_with_default(tf.constant(0, tf.int64), [], name="start_step")
        if training and self.examples(training=True) < shard.size:
            raise BenchmarkError(f"{shard.size} ranks cannot share {self.examples(training=True)} image(s)")
        records = own_records(
            find_shards(self._folder, training=training),
            shard,
            training=training,
            seed=start + seed,
            options=options,
        )
        if options.repeat_cached_sample:
            share = -(-self.examples(training=training) // shard.size)
            records = records.take(1).cache().repeat(None if training else share)

        def load(number: Any, record: Any) -> tuple[Any, Any]:
            return parse(record, image_size, number % shard.batch, training=training, options=options)

        data = records.enumerate().map(load, num_parallel_calls=threads, deterministic=True)
        if not training:
            blank = tf.data.Dataset.from_tensors((tf.zeros([image_size, image_size, 3]), tf.constant(-1)))
            data = data.concatenate(blank.repeat(shard.batch - 1))
        data = data.batch(shard.batch, drop_remainder=True)
        iterator = v1.data.make_initializable_iterator(ahead(data, options, threads=threads))
        images, labels = iterator.get_next()
        images.set_shape([shard.batch, image_size, image_size, 3])
        return Batch(images, labels, iterator.initializer, start)


def own_records(
    shards: list[Path],
    shard: Shard,
    *,
    training: bool,
    seed: Any,
    options: InputOptions = DEFAULT_OPTIONS,
) -> Any:
    """This rank's serialized examples: whole files while there is one for each rank, else every size-th
    record. Either way no two ranks see the same one."""
    names = [str(path) for path in shards]
    by_file = len(names) >= shard.size
    if by_file:
        names = names[shard.rank :: shard.size]
    files = tf.data.Dataset.from_tensor_slices(names)
    if training and by_file:
        files = files.shuffle(len(names), seed=seed, reshuffle_each_iteration=True)
    cycle = min(options.cycle_length or FILES_AT_ONCE, len(names)) if training else 1

    def read(file: Any) -> Any:
        data = tf.data.TFRecordDataset(file)
        return data.prefetch(options.interleave_prefetch) if options.interleave_prefetch else data

    records = files.interleave(
        read,
        cycle_length=cycle,
        num_parallel_calls=cycle if cycle > 1 else None,
        deterministic=not (training and options.sloppy) if cycle > 1 else None,
    )
    if not by_file:
        records = records.shard(shard.size, shard.rank)
    if options.use_caching:
        records = records.cache()
    if training:
        records = records.shuffle(SHUFFLE_RECORDS, seed=seed, reshuffle_each_iteration=True).repeat()
    return records
