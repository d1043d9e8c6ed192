"""Real input: what is read, by whom, how often, in which order."""

from __future__ import annotations

import json
import pickle
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
folder, shards, per_shard = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
label = 0
for kind in ("train", "validation"):
    for shard in range(shards):
        with tf.io.TFRecordWriter(f"{folder}/{kind}-{shard:05d}-of-{shards:05d}") as writer:
            for i in range(per_shard):
                label += 1
                # One grey per label, so that an image tells which it is after any crop, scaling or mirroring.
                pixels = np.full((40 + 3 * i, 50, 3), label * 2, np.uint8)
                encode = tf.io.encode_png if i % 3 == 2 else tf.io.encode_jpeg
                encoded = tf.train.BytesList(value=[encode(pixels).numpy()])
                feature = {
                    "image/encoded": tf.train.Feature(bytes_list=encoded),
                    "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                if i % 2:
                    for side, value in (("ymin", 0.1), ("xmin", 0.2), ("ymax", 0.7), ("xmax", 0.9)):
                        box = tf.train.FloatList(value=[value])
                        feature[f"image/object/bbox/{side}"] = tf.train.Feature(float_list=box)
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
print(json.dumps(label))
"""
READ = """
import json, sys
import numpy as np
import tensorflow as tf
from tf_cnn_benchmarks.benchmark import input_options
from tf_cnn_benchmarks.datasets import Shard, open_data
from tf_cnn_benchmarks.params import parse
v1 = tf.compat.v1
name, folder, cases = sys.argv[1], sys.argv[2] or None, json.loads(sys.argv[3])
options = input_options(parse(["x", f"--data_name={name}", *sys.argv[4:]]))
found = []
for rank, size, batch, training, steps, start in cases:
    with tf.Graph().as_default(), v1.Session() as session:
        data = open_data(name, folder)
        got = data.batches(Shard(rank, size, batch), 32, training=training, seed=7, threads=2,
                           options=options)
        session.run(got.initializer, {**got.feed, got.start_step: start})
        batches = []
        for _ in range(steps):
            try:
                images, labels = session.run([got.images, got.labels])
            except tf.errors.OutOfRangeError:
                break
            assert images.shape == (batch, 32, 32, data.channels) and images.dtype == np.float32
            batches.append([labels.tolist(), images.mean((1, 2, 3)).tolist(), images.std((1, 2, 3)).tolist(),
                            images[:, 3, 5, 0].tolist()])
        found.append(batches)
print(json.dumps([data.examples(training=True), data.examples(training=False), found]))
"""


def read(
    env: Environment, name: str, folder: Path | None, cases: list[list[Any]], *flags: str
) -> tuple[int, int, Any]:
    train, validation, found = env.evaluate(READ, name, folder or "", json.dumps(cases), *flags)
    return train, validation, found


def labels_of(batches: Any) -> list[int]:
    return [label for batch in batches for label in batch[0]]


@pytest.fixture(scope="module")
def records(tf_env: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 + 4 shards of 5 images; labels 1 to 20 to train, 21 to 40 to validate, each grey level 2 x label."""
    folder = tmp_path_factory.mktemp("imagenet")
    assert tf_env.evaluate(WRITE, folder, "4", "5") == 40
    return folder


def test_tfrecords_for_training(tf_env: Environment, records: Path) -> None:
    """Each rank goes through its own shards again and again; together they are all images."""
    cases = [[0, 1, 5, True, 8, 0], [0, 2, 5, True, 8, 0], [1, 2, 5, True, 8, 0]]
    six = [[rank, 6, 1, True, 12, 0] for rank in range(6)]
    train, validation, (alone, first, second, *sixths) = read(tf_env, "imagenet", records, cases + six)
    assert (train, validation) == (20, 20)
    assert Counter(labels_of(alone)) == dict.fromkeys(range(1, 21), 2)
    assert set(labels_of(first)) | set(labels_of(second)) == set(range(1, 21))
    assert not set(labels_of(first)) & set(labels_of(second))
    assert Counter(labels_of(first)) == dict.fromkeys(set(labels_of(first)), 4)
    assert labels_of(alone)[:20] != sorted(labels_of(alone)[:20])
    # More ranks than shards: record by record.
    parts = [set(labels_of(sixth)) for sixth in sixths]
    assert set.union(*parts) == set(range(1, 21)) and sum(map(len, parts)) == 20


def test_tfrecord_images_belong_to_their_labels(tf_env: Environment, records: Path) -> None:
    cases = [[0, 1, 4, training, 5, 0] for training in (True, False)]
    _, _, found = read(tf_env, "imagenet", records, cases)
    for batches in found:
        for labels, means, deviations, _ in batches:
            for label, mean, deviation in zip(labels, means, deviations, strict=True):
                assert mean == pytest.approx(label * 2 / 127.5 - 1, abs=0.02)
                assert deviation < 0.01


def test_tfrecords_for_evaluation(tf_env: Environment, records: Path) -> None:
    """Each image once over all ranks; places of the last batch that are left over carry label -1."""
    sizes = {1: 3, 2: 4, 3: 7, 6: 2}
    cases = [[rank, size, batch, False, 99, 0] for size, batch in sizes.items() for rank in range(size)]
    _, _, found = read(tf_env, "imagenet", records, cases)
    for size in sizes:
        mine = [labels_of(batches) for case, batches in zip(cases, found, strict=True) if case[1] == size]
        counted = [label for labels in mine for label in labels if label != -1]
        assert sorted(counted) == list(range(21, 41))
        if size == 1:
            assert counted == sorted(counted)


def test_training_and_evaluation_on_tfrecords(tf_env: Environment, records: Path, tmp_path: Path) -> None:
    flags = ["--model=lenet", f"--data_dir={records}", "--batch_size=4", f"--train_dir={tmp_path}"]
    trained, evaluated = tf_env.benchmarks(
        [*flags, "--num_epochs=2", "--print_training_accuracy"],
        [*flags[:2], "--batch_size=3", flags[3], "--eval"],
    )
    assert "Dataset:     imagenet\n" in trained.ok().out
    assert "Num batches: 10\n" in trained.out and (tmp_path / "model.ckpt-20.index").exists()
    assert "[20 examples]" in evaluated.ok().out


def test_damaged_tfrecords_are_named(tf_env: Environment, records: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    corrupt = tmp_path / "corrupt"
    empty = tmp_path / "empty"
    for folder in (cut, corrupt, empty):
        folder.mkdir()
    whole = (records / "train-00000-of-00004").read_bytes()
    (cut / "train-00000-of-00001").write_bytes(whole[:-5])
    (corrupt / "train-00000-of-00001").write_bytes(whole[:60] + b"!" + whole[61:])
    messages = [
        run.error()
        for run in tf_env.benchmarks(
            *(["--model=lenet", f"--data_dir={folder}", "--batch_size=2"] for folder in (cut, corrupt, empty))
        )
    ]
    assert "train-00000-of-00001" in messages[0] and "is truncated or not a TFRecord file" in messages[0]
    assert "DataLossError" in messages[1]
    assert "train-*" in messages[2]


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any, Any]:
    """The same 30 + 12 random images in the binary and in the Python form."""
    rng = np.random.default_rng(8)
    folder = tmp_path_factory.mktemp("cifar")
    binary, python = folder / "a" / "cifar-10-batches-bin", folder / "b"
    binary.mkdir(parents=True)
    python.mkdir()
    pixels = rng.integers(0, 256, (42, 3072), dtype=np.uint8)
    labels = rng.integers(0, 10, 42)
    names = ["data_batch_1", "data_batch_2", "test_batch"]
    for name, start, stop in zip(names, (0, 20, 30), (20, 30, 42), strict=True):
        rows = np.concatenate([labels[start:stop, None].astype(np.uint8), pixels[start:stop]], axis=1)
        (binary / f"{name}.bin").write_bytes(rows.tobytes())
        content = {b"data": pixels[start:stop], b"labels": labels[start:stop].tolist()}
        (python / name).write_bytes(pickle.dumps(content, protocol=2))
    return folder / "a", python, pixels, labels


def test_cifar10_in_both_forms(tf_env: Environment, cifar: tuple[Path, Path, Any, Any]) -> None:
    binary, python, pixels, labels = cifar
    for folder in (binary, python):
        code = (
            "import sys; from tf_cnn_benchmarks.params import parse; print(repr(parse(sys.argv).data_name))"
        )
        assert tf_env.python("-c", code, f"--data_dir={folder}", "--model=resnet20").ok().out == "'cifar10'\n"
    cases = [[0, 1, 5, False, 9, 0], [0, 1, 6, True, 5, 0]]
    results = [read(tf_env, "cifar10", folder, cases) for folder in (binary, python)]
    assert results[0] == results[1]
    train, validation, (evaluation, training) = results[0]
    assert (train, validation) == (30, 12)
    assert labels_of(evaluation) == [*labels[30:].tolist(), -1, -1, -1]
    mean, deviation = np.array([125.3, 123.0, 113.9]), np.array([63.0, 62.1, 66.7])
    images = (pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) - mean) / deviation
    means = [value for batch in evaluation for value in batch[1]][:12]
    assert np.allclose(means, images[30:].mean((1, 2, 3)), atol=1e-5)
    corner = [value for batch in evaluation for value in batch[3]][:12]
    assert np.allclose(corner, images[30:, 3, 5, 0], atol=1e-5)
    assert Counter(labels_of(training)) == Counter(labels[:30].tolist())


def test_cifar10_shift_and_mirror(tf_env: Environment) -> None:
    """Each augmented image is one of the 2 x 81 crops of the padded original, and they differ."""
    code = """
import json
import numpy as np
import tensorflow as tf
from tf_cnn_benchmarks.datasets.cifar10 import shift_and_mirror
rng = np.random.default_rng(1)
images = rng.normal(size=(64, 32, 32, 3)).astype(np.float32)
out = shift_and_mirror(tf.constant(images), tf.random.stateless_uniform([64, 3], [1, 2])).numpy()
padded = np.pad(images, [[0, 0], [4, 4], [4, 4], [0, 0]])
kinds = []
for image, all_of_it in zip(out, padded):
    kinds += [(y, x, m) for y in range(9) for x in range(9) for m in (1, -1)
              if np.array_equal(image, all_of_it[y:y+32, x:x+32][:, ::m])]
print(json.dumps([len(kinds), len(set(kinds)), sum(m == 1 for _, _, m in kinds)]))
"""
    found, different, unmirrored = tf_env.evaluate(code)
    assert found == 64 and different > 40 and 20 < unmirrored < 44


def test_damaged_cifar10_is_refused(tf_env: Environment, tmp_path: Path) -> None:
    cut, evil, none = tmp_path / "cut", tmp_path / "evil", tmp_path / "none"
    for folder in (cut, evil, none):
        folder.mkdir()
    (cut / "data_batch_1.bin").write_bytes(bytes(5000))
    trap = tmp_path / "sprung"
    (evil / "data_batch_1").write_bytes(f"cos\nsystem\n(S'touch {trap}'\ntR.".encode())
    flags = ["--data_name=cifar10", "--model=lenet", "--batch_size=2"]
    runs = tf_env.benchmarks(*([*flags, f"--data_dir={folder}"] for folder in (cut, evil, none)))
    assert "data_batch_1.bin" in runs[0].error() and "5000 bytes" in runs[0].error()
    assert "os.system has no place" in runs[1].error().replace("posix.", "os.")
    assert not trap.exists()
    assert "data_batch_1.bin" in runs[2].error()


@pytest.mark.parametrize("name", ["digits", "cifar10"])
def test_order_does_not_depend_on_ranks(
    tf_env: Environment, cifar: tuple[Path, Path, Any, Any], name: str
) -> None:
    """The slices of 1, 2 and 4 ranks make up the same global batches, augmentation included; a run that
    starts at step 3 goes on with what comes there."""
    folder = cifar[0] if name == "cifar10" else None
    cases = [[r, size, 12 // size, True, 6, 0] for size in (1, 2, 4) for r in range(size)]
    _, _, found = read(tf_env, name, folder, [*cases, [0, 1, 12, True, 3, 3]])
    whole, late = found[0], found[-1]
    assert late == whole[3:]
    for first, ranks in ((1, 2), (3, 4)):
        for step in range(6):
            for column in range(4):
                joined = [value for part in found[first : first + ranks] for value in part[step][column]]
                assert np.allclose(joined, whole[step][column], atol=1e-6)


def test_every_epoch_has_each_digit_once_in_another_order(tf_env: Environment) -> None:
    train, validation, (batches, evaluation) = read(
        tf_env, "digits", None, [[0, 1, 479, True, 6, 0], [0, 1, 100, False, 9, 0]]
    )
    assert (train, validation) == (1437, 360)
    epochs = [
        [tuple(image) for batch in part for image in zip(*batch, strict=True)]
        for part in (batches[:3], batches[3:])
    ]
    assert Counter(epochs[0]) == Counter(epochs[1])
    assert epochs[0] != epochs[1]
    assert len(set(epochs[0])) > 1400
    assert len([label for label in labels_of(evaluation) if label >= 0]) == 360


def test_a_batch_beyond_the_data_is_refused(tf_env: Environment) -> None:
    (run,) = tf_env.benchmarks(["--data_name=digits", "--batch_size=2000"])
    assert "2000" in run.error() and "1437" in run.error()
