"""ImageNet from TFRecord shards `train-*` and `validation-*` of TFExamples with `image/encoded` (JPEG or PNG)
and `image/class/label` (1 to 1000; 0 is background)."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.datasets.sizes import IMAGENET
from tf_cnn_benchmarks.datasets.spec import Batch, Shard
from tf_cnn_benchmarks.errors import BenchmarkError

v1 = tf.compat.v1

OFFICIAL_SHARDS = {"train": 1024, "validation": 128}
SHUFFLE_RECORDS = 1024
"""About 110 MB of encoded images; the shards of the usual conversion are shuffled already."""
CENTRAL_FRACTION = 0.875


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
                raise BenchmarkError(f"{path} is cut off or no TFRecord file (record {count}); make it anew")
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

    def batches(self, shard: Shard, image_size: int, *, training: bool, seed: int, threads: int) -> Batch:
        start = v1.placeholder_with_default(tf.constant(0, tf.int64), [], name="start_step")
        records = own_records(
            find_shards(self._folder, training=training), shard, training=training, seed=start + seed
        )
        if training and self.examples(training=True) < shard.size:
            raise BenchmarkError(f"{shard.size} ranks cannot share {self.examples(training=True)} image(s)")

        def load(record: Any) -> tuple[Any, Any]:
            return parse(record, image_size, training=training)

        data = records.map(load, num_parallel_calls=threads, deterministic=True)
        if not training:
            blank = tf.data.Dataset.from_tensors((tf.zeros([image_size, image_size, 3]), tf.constant(-1)))
            data = data.concatenate(blank.repeat(shard.batch - 1))
        data = data.batch(shard.batch, drop_remainder=True).prefetch(2)
        options = tf.data.Options()
        options.threading.private_threadpool_size = threads
        iterator = v1.data.make_initializable_iterator(data.with_options(options))
        images, labels = iterator.get_next()
        return Batch(images, labels, iterator.initializer, start)


def own_records(shards: list[Path], shard: Shard, *, training: bool, seed: Any) -> Any:
    """This rank's serialized examples: whole files while there is one for each rank, else every size-th
    record. Either way no two ranks see the same one."""
    names = [str(path) for path in shards]
    by_file = len(names) >= shard.size
    if by_file:
        names = names[shard.rank :: shard.size]
    files = tf.data.Dataset.from_tensor_slices(names)
    if training and by_file:
        files = files.shuffle(len(names), seed=seed, reshuffle_each_iteration=True)
    records = files.interleave(
        tf.data.TFRecordDataset, cycle_length=min(8, len(names)) if training else 1, deterministic=True
    )
    if not by_file:
        records = records.shard(shard.size, shard.rank)
    if training:
        records = records.shuffle(SHUFFLE_RECORDS, seed=seed, reshuffle_each_iteration=True).repeat()
    return records


def parse(record: Any, image_size: int, *, training: bool) -> tuple[Any, Any]:
    """One image of image_size x image_size x 3 in [-1, 1] and its label."""
    sides = ("ymin", "xmin", "ymax", "xmax")
    boxes = {f"image/object/bbox/{side}": tf.io.VarLenFeature(tf.float32) for side in sides}
    features = tf.io.parse_single_example(
        record,
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64),
            **boxes,
        },
    )
    encoded = features["image/encoded"]
    if training:
        edges = [tf.sparse.to_dense(features[name]) for name in boxes]
        image = _random_part(encoded, tf.stack(edges, axis=-1)[None])
        image = tf.image.random_flip_left_right(image)
    else:
        image = _central_part(encoded)
    image = tf.image.resize(image, [image_size, image_size])
    return image / 127.5 - 1.0, tf.cast(features["image/class/label"], tf.int32)


def _crop(encoded: Any, y: Any, x: Any, height: Any, width: Any) -> Any:
    """A rectangle of the image; of a JPEG only that rectangle is decoded."""
    window = tf.stack([y, x, height, width])
    return tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: tf.image.decode_and_crop_jpeg(encoded, window, channels=3),
        lambda: tf.slice(tf.image.decode_png(encoded, channels=3), [y, x, 0], tf.stack([height, width, 3])),
    )


def _shape(encoded: Any) -> Any:
    return tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: tf.image.extract_jpeg_shape(encoded),
        lambda: tf.shape(tf.image.decode_png(encoded, channels=3)),
    )


def _random_part(encoded: Any, boxes: Any) -> Any:
    """Between 8 % and all of the image, at an aspect ratio of 3/4 to 4/3 (arXiv:1409.4842)."""
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        _shape(encoded),
        boxes,
        min_object_covered=0.1,
        aspect_ratio_range=[0.75, 1.33],
        area_range=[0.08, 1.0],
        max_attempts=100,
        use_image_if_no_bounding_boxes=True,
    )
    return _crop(encoded, begin[0], begin[1], size[0], size[1])


def _central_part(encoded: Any) -> Any:
    """The central square of 87.5 % of the shorter side."""
    shape = _shape(encoded)
    height, width = shape[0], shape[1]
    side = tf.cast(CENTRAL_FRACTION * tf.cast(tf.minimum(height, width), tf.float32), tf.int32)
    side = tf.maximum(side, 1)
    return _crop(encoded, (height - side) // 2, (width - side) // 2, side, side)
