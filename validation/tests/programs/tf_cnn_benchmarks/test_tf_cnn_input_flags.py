"""Flags of real input: what reaches the model, against numpy, and how it is read."""

from __future__ import annotations

import colorsys
import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from program_runner import Environment

WRITE = """
import json, sys
import numpy as np
import tensorflow as tf
folder, sizes = sys.argv[1], json.loads(sys.argv[2])
rng = np.random.default_rng(4)
label = 0
for kind in ("train", "validation"):
    for shard in range(2):
        with tf.io.TFRecordWriter(f"{folder}/{kind}-{shard:05d}-of-00002") as writer:
            for height, width in sizes:
                label += 1
                # Smooth, so that JPEG keeps it, and another for each label.
                rows, columns = np.mgrid[0:height, 0:width]
                phases = rows / height, columns / width * 3 + label
                waves = [128 + 100 * np.sin(phases[0] * (2 + c) + phases[1]) for c in range(3)]
                encoded = tf.io.encode_jpeg(np.stack(waves, -1).astype(np.uint8), quality=98)
                np.save(f"{folder}/{label}.npy", tf.io.decode_jpeg(encoded).numpy())
                feature = {
                    "image/encoded": tf.train.Feature(
                        bytes_list=tf.train.BytesList(value=[encoded.numpy()])),
                    "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
print(json.dumps(label))
"""
SIZES = [[60, 80], [64, 64], [90, 50], [70, 100]]
SIZE = 32

READ = """
import json, sys
import numpy as np
import tensorflow as tf
from tf_cnn_benchmarks.benchmark import input_options
from tf_cnn_benchmarks.datasets import Shard, open_data
from tf_cnn_benchmarks.params import parse
v1 = tf.compat.v1
folder, out, batch, steps, training, lines = sys.argv[1], sys.argv[2], *json.loads(sys.argv[3])
found = []
for i, flags in enumerate(lines):
    with tf.Graph().as_default() as graph, v1.Session() as session:
        v1.set_random_seed(3)
        options = input_options(parse(["x", f"--data_dir={folder}", *flags]))
        got = open_data("imagenet", folder).batches(
            Shard(0, 1, batch), 32, training=training, seed=7, threads=2, options=options)
        session.run(got.initializer, {got.start_step: 0})
        images, labels = zip(*[session.run([got.images, got.labels]) for _ in range(steps)])
        np.save(f"{out}/{i}.npy", np.concatenate(images))
        text = str(graph.as_graph_def())
        found.append([np.concatenate(labels).tolist(), text])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def records(tf_env: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labels 1 to 8 to train on and 9 to 16 to evaluate, in two files each."""
    folder = tmp_path_factory.mktemp("records")
    assert tf_env.evaluate(WRITE, folder, json.dumps(SIZES)) == 16
    return folder


def read(
    env: Environment,
    records: Path,
    folder: Path,
    lines: list[list[str]],
    *,
    batch: int,
    steps: int,
    training: bool,
) -> list[tuple[Any, list[int], str]]:
    """Images, labels and the graph's text for each list of flags."""
    arguments = json.dumps([batch, steps, training, lines])
    found = env.evaluate(READ, records, folder, arguments, timeout=240)
    return [(np.load(folder / f"{i}.npy"), labels, text) for i, (labels, text) in enumerate(found)]


def pixels(records: Path, label: int) -> Any:
    return np.load(records / f"{label}.npy").astype(np.float64)


def central(image: Any) -> Any:
    """The central 87.5 % of the shorter side, as evaluation crops."""
    side = int(0.875 * min(image.shape[:2]))
    top, left = (image.shape[0] - side) // 2, (image.shape[1] - side) // 2
    return image[top : top + side, left : left + side]


def bilinear(image: Any, size: tuple[int, int]) -> Any:
    """With pixel centres at half numbers."""
    for axis, length in enumerate(size):
        old = image.shape[axis]
        at = np.clip((np.arange(length) + 0.5) * old / length - 0.5, 0, old - 1)
        low = np.floor(at).astype(int)
        high, share = (
            np.minimum(low + 1, old - 1),
            (at - low).reshape([-1 if a == axis else 1 for a in range(3)]),
        )
        image = np.take(image, low, axis) * (1 - share) + np.take(image, high, axis) * share
    return image


def nearest(image: Any, size: int) -> Any:
    """The pixel in which the centre of the new one lies."""
    rows, columns = (((2 * np.arange(size) + 1) * n // (2 * size)) for n in image.shape[:2])
    return image[rows][:, columns]


def test_evaluation_images_against_numpy(tf_env: Environment, records: Path, tmp_path: Path) -> None:
    """Every way to make the size and the range of numbers, for each of the eight images."""
    lines = [
        ["--resize_method=bilinear"],
        ["--resize_method=bilinear", "--nofuse_decode_and_crop"],
        ["--resize_method=nearest"],
        ["--resize_method=crop"],
        ["--ml_perf"],
        ["--input_preprocessor=official_models_imagenet"],
    ]
    found = read(tf_env, records, tmp_path, lines, batch=4, steps=2, training=False)
    scaled, means = (lambda x: x / 127.5 - 1), (lambda x: x - np.array([123.68, 116.78, 103.94]))

    def cut(image: Any) -> Any:
        top, left = (image.shape[0] - SIZE) // 2, (image.shape[1] - SIZE) // 2
        return image[top : top + SIZE, left : left + SIZE]

    def official(image: Any) -> Any:
        factor = 256 / min(image.shape[:2])
        return cut(bilinear(image, (round(image.shape[0] * factor), round(image.shape[1] * factor))))

    expected = [
        lambda x: scaled(bilinear(central(x), (SIZE, SIZE))),
        lambda x: scaled(bilinear(central(x), (SIZE, SIZE))),
        lambda x: scaled(nearest(central(x), SIZE)),
        lambda x: scaled(cut(x)),
        lambda x: means(bilinear(central(x), (SIZE, SIZE))),
        lambda x: means(official(x)),
    ]
    for flags, (images, labels, _), want in zip(lines, found, expected, strict=True):
        assert labels == list(range(9, 17))
        limit = 0.03 if "--ml_perf" not in flags and "official" not in flags[0] else 3.0
        for image, label in zip(images, labels, strict=True):
            error = np.abs(image - want(pixels(records, label))).max()
            assert error < limit, (flags, label, error)


def test_resize_methods_in_turns(tf_env: Environment, records: Path, tmp_path: Path) -> None:
    """The image at place i of a batch is resized by method i of nearest, bilinear, bicubic, area."""
    methods = ["nearest", "bilinear", "bicubic", "area"]
    lines = [["--resize_method=round_robin"], *([f"--resize_method={name}"] for name in methods)]
    turns, *single = [
        images for images, _, _ in read(tf_env, records, tmp_path, lines, batch=4, steps=2, training=False)
    ]
    for place, image in enumerate(turns):
        same = [np.abs(image - one[place]).max() < 1e-6 for one in single]
        assert same == [place % 4 == i for i in range(4)]


def test_crops_for_training_are_parts_of_the_image(
    tf_env: Environment, records: Path, tmp_path: Path
) -> None:
    """With --resize_method=crop each image is found in its original, as it is or mirrored."""
    ((images, labels, _),) = read(
        tf_env, records, tmp_path, [["--resize_method=crop"]], batch=4, steps=2, training=True
    )
    places = set()
    for image, label in zip(images, labels, strict=True):
        original = pixels(records, label) / 127.5 - 1
        hits = [
            (y, x, m)
            for y in range(original.shape[0] - SIZE + 1)
            for x in range(original.shape[1] - SIZE + 1)
            for m in (1, -1)
            if np.abs(original[y : y + SIZE, x : x + SIZE][:, ::m] - image).max() < 0.02
        ]
        assert len(hits) == 1, label
        places.add(hits[0])
    assert len(places) > 4


@pytest.mark.parametrize("flag", ["--distort_color_in_yiq", "--nodistort_color_in_yiq"])
def test_distortions_change_colours(tf_env: Environment, records: Path, tmp_path: Path, flag: str) -> None:
    """Of the same crops, for the same random numbers draw them; the values stay in their range."""
    crops = ["--resize_method=nearest", "--datasets_repeat_cached_sample"]
    (plain, _, before), (changed, _, after) = read(
        tf_env, records, tmp_path, [crops, [*crops, "--distortions", flag]], batch=8, steps=2, training=True
    )
    assert np.abs(changed).max() <= 1.0 + 1e-6
    ratios = [float(image.std(axis=(0, 1)).mean()) for image in changed]
    assert max(ratios) > 1.3 * min(ratios) and plain.shape == changed.shape
    assert ("AdjustHue" in after) == (flag == "--nodistort_color_in_yiq")
    assert "AdjustContrastv2" in after and "AdjustContrastv2" not in before


def test_hue_and_saturation_in_yiq(tf_env: Environment) -> None:
    """Against Python's own colour conversion."""
    random.seed(6)
    colours = [[random.random() for _ in range(3)] for _ in range(12)]
    code = """
import json, sys
import tensorflow as tf
from tf_cnn_benchmarks.datasets.colours import turn_in_yiq
image = tf.constant(json.loads(sys.argv[1]))[None]
print(json.dumps(turn_in_yiq(image, tf.constant(0.4), tf.constant(1.3)).numpy()[0].tolist()))
"""
    for colour, got in zip(colours, tf_env.evaluate(code, json.dumps(colours)), strict=True):
        y, i, q = colorsys.rgb_to_yiq(*colour)
        new_y, new_i, new_q = colorsys.rgb_to_yiq(*got)
        if max(got) > 1 or min(got) < 0:
            continue  # Python's conversion back would clip; forward is linear and holds anyway
        assert new_y == pytest.approx(y, abs=0.01)
        assert math.hypot(new_i, new_q) == pytest.approx(1.3 * math.hypot(i, q), abs=0.015)
        turned = math.atan2(new_q, new_i) - math.atan2(q, i)
        assert math.remainder(turned - 0.4, 2 * math.pi) == pytest.approx(0, abs=0.05)


def test_how_files_are_read(tf_env: Environment, records: Path, tmp_path: Path) -> None:
    """Caching, grouping, prefetching and the number of files do not change which images are seen; a repeated
    sample does."""
    lines = [
        [],
        ["--datasets_use_caching", "--batch_group_size=3"],
        ["--datasets_parallel_interleave_cycle_length=1", "--datasets_parallel_interleave_prefetch=3"],
        ["--datasets_sloppy_parallel_interleave", "--nodatasets_use_prefetch"],
        ["--datasets_prefetch_buffer_size=7", "--datasets_num_private_threads=0"],
        ["--datasets_repeat_cached_sample"],
    ]
    found = read(tf_env, records, tmp_path, lines, batch=2, steps=12, training=True)
    for flags, (_, labels, _) in list(zip(lines, found, strict=True))[:-1]:
        assert Counter(labels) == dict.fromkeys(range(1, 9), 3), flags
    assert len(set(found[-1][1])) == 1
    graphs = [text for _, _, text in found]
    assert ["CacheDataset" in text for text in graphs] == [False, True, False, False, False, True]
    assert ["UnbatchDataset" in text for text in graphs] == [False, True, False, False, False, False]
    assert ["OptionsDataset" in text for text in graphs] == [True, True, True, True, False, True]
    # One of batches, and in the third one of each file's records.
    assert [text.count('op: "PrefetchDataset"') for text in graphs] == [1, 1, 2, 0, 1, 1]


def test_cached_records_are_not_read_again(tf_env: Environment, records: Path, tmp_path: Path) -> None:
    """After the first epoch the files may be gone, with the cache only."""
    code = """
import json, pathlib, sys
import tensorflow as tf
from tf_cnn_benchmarks.benchmark import input_options
from tf_cnn_benchmarks.datasets import Shard, open_data
from tf_cnn_benchmarks.params import parse
v1 = tf.compat.v1
folder = pathlib.Path(sys.argv[1])
options = input_options(parse(["x", "--nodatasets_use_prefetch", *sys.argv[2:]]))
with tf.Graph().as_default(), v1.Session() as session:
    got = open_data("imagenet", str(folder)).batches(
        Shard(0, 1, 2), 32, training=True, seed=7, threads=1, options=options)
    session.run(got.initializer, {got.start_step: 0})
    for step in range(40):
        try:
            session.run(got.labels)
        except tf.errors.NotFoundError:
            break
        if step == 6:
            for file in folder.glob("train-*"):
                file.unlink()
print(json.dumps(step))
"""
    steps = []
    for flags in ([], ["--datasets_use_caching"]):
        folder = tmp_path / str(len(flags))
        folder.mkdir()
        for file in records.glob("train-*"):
            (folder / file.name).write_bytes(file.read_bytes())
        steps.append(tf_env.evaluate(code, folder, *flags))
    assert steps[0] < 39 and steps[1] == 39


def test_too_small_images_for_a_crop_are_named(tf_env: Environment, records: Path) -> None:
    flags = ["--data_name=imagenet", f"--data_dir={records}", "--model=trivial", "--num_batches=1"]
    (run,) = tf_env.benchmarks([*flags, "--batch_size=2", "--resize_method=crop"])
    assert "--resize_method=crop" in run.error()


def test_cifar10_is_augmented_with_distortions_only(tf_env: Environment, tmp_path: Path) -> None:
    """Without, images are those of the files."""
    labels = np.arange(20, dtype=np.uint8) % 10
    images = np.random.default_rng(3).integers(0, 256, (20, 3072), dtype=np.uint8)
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (tmp_path / name).write_bytes(np.concatenate([labels[:, None], images], axis=1).tobytes())
    code = """
import json, sys
import tensorflow as tf
from tf_cnn_benchmarks.benchmark import input_options
from tf_cnn_benchmarks.datasets import Shard, open_data
from tf_cnn_benchmarks.params import parse
v1 = tf.compat.v1
found = []
for flags in ([], ["--distortions"]):
    with tf.Graph().as_default(), v1.Session() as session:
        got = open_data("cifar10", sys.argv[1]).batches(
            Shard(0, 1, 20), 32, training=True, seed=7, threads=1, options=input_options(parse(["x",
            *flags])))
        session.run(got.initializer, {**got.feed, got.start_step: 0})
        found.append(sorted(session.run(got.images).sum((1, 2, 3)).tolist()))
print(json.dumps(found))
"""
    plain, distorted = tf_env.evaluate(code, tmp_path)
    mean, deviation = np.array([125.3, 123.0, 113.9]), np.array([63.0, 62.1, 66.7])
    originals = (images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) - mean) / deviation
    sums = sorted(originals.sum((1, 2, 3)))
    assert np.allclose(plain, sums, atol=0.02) and not np.allclose(distorted, sums, atol=0.5)
