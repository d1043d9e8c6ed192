"""CIFAR-10 from its official binary or Python batches."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tf_cnn_benchmarks.datasets.in_memory import ordered_batches
from tf_cnn_benchmarks.datasets.sizes import CIFAR10
from tf_cnn_benchmarks.datasets.spec import DEFAULT_OPTIONS, Batch, InputOptions, Shard
from tf_cnn_benchmarks.errors import BenchmarkError

PIXELS = 32
MARGIN = 4
FOLDERS = (".", "cifar-10-batches-bin", "cifar-10-batches-py")
MEAN = (125.3, 123.0, 113.9)
DEVIATION = (63.0, 62.1, 66.7)


class _ArraysOnly(pickle.Unpickler):
    """Reads what the official batches hold and refuses everything else: a pickle may run any program."""

    ALLOWED = frozenset(
        {
            ("numpy", "dtype"),
            ("numpy", "ndarray"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} has no place in a CIFAR-10 batch")
        return super().find_class(module_name.replace("numpy.core", "numpy._core"), global_name)


def _read_binary(path: Path) -> tuple[Any, Any]:
    """Records of one label byte and 3 x 32 x 32 image bytes."""
    record = 1 + 3 * PIXELS * PIXELS
    raw = np.fromfile(path, np.uint8)
    if raw.size == 0 or raw.size % record:
        raise ValueError(f"{raw.size} bytes are no whole number of records of {record}")
    rows = raw.reshape(-1, record)
    return rows[:, 1:], rows[:, 0]


def _read_python(path: Path) -> tuple[Any, Any]:
    with path.open("rb") as file:
        content = _ArraysOnly(file, encoding="bytes").load()
    if not isinstance(content, dict):
        raise ValueError("the pickle holds no dictionary")
    return np.asarray(content[b"data"], np.uint8), np.asarray(content[b"labels"])


Reader = Callable[[Path], tuple[Any, Any]]


def _files(folder: Path, training: bool) -> tuple[list[Path], Reader]:
    forms: list[tuple[str, Reader]] = [(".bin", _read_binary), ("", _read_python)]
    for place in FOLDERS:
        for ending, reader in forms:
            pattern = ("data_batch_[0-9]" if training else "test_batch") + ending
            if files := sorted((folder / place).glob(pattern)):
                return files, reader
    names = "data_batch_1.bin ... data_batch_5.bin" if training else "test_batch.bin"
    raise BenchmarkError(
        f"--data_dir={folder} holds no CIFAR-10 batches: expected {names} (or the Python form without .bin) "
        f"there or in {FOLDERS[1]} or {FOLDERS[2]} below it"
    )


def read_batches(folder: Path, *, training: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """All images (N x 32 x 32 x 3) and labels; BenchmarkError names a file that cannot be read."""
    files, reader = _files(folder, training)
    images, labels = [], []
    for file in files:
        try:
            pixels, classes = reader(file)
            images.append(pixels.reshape(-1, 3, PIXELS, PIXELS).transpose(0, 2, 3, 1))
        except (OSError, ValueError, KeyError, EOFError, pickle.UnpicklingError) as error:
            raise BenchmarkError(f"{file} is not a CIFAR-10 batch: {error}; fetch it again") from None
        if len(classes) != len(images[-1]) or not ((classes >= 0) & (classes < CIFAR10.classes)).all():
            raise BenchmarkError(f"{file} is not a CIFAR-10 batch: its labels do not fit; fetch it again")
        labels.append(np.asarray(classes, np.int32))
    return np.ascontiguousarray(np.concatenate(images)), np.concatenate(labels)


class Cifar10:
    """Real CIFAR-10. Only the half that is asked for is read."""

    classes = CIFAR10.classes
    channels = CIFAR10.channels
    synthetic = False
    title = "cifar10"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[bool, tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]] = {}

    def _half(self, training: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
        if training not in self._read:
            self._read[training] = read_batches(self._folder, training=training)
        return self._read[training]

    def examples(self, *, training: bool) -> int:
        return len(self._half(training)[1])

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
        images, labels = self._half(training)

        def prepare(chosen: Any) -> Any:
            return (tf.cast(chosen, tf.float32) - tf.constant(MEAN)) / tf.constant(DEVIATION)

        return ordered_batches(
            images,
            labels,
            shard,
            prepare,
            training=training,
            seed=seed,
            threads=threads,
            options=options,
            augment=shift_and_mirror if options.distortions else None,
        )


def shift_and_mirror(images: Any, numbers: Any) -> Any:
    """Four pixels of margin, a random crop, half of them mirrored (He et al. 2015, section 4.2), for a whole
    batch at once: an operator per image would cost more than a small model."""
    size = int(images.shape[1])
    padded = tf.pad(images, [[0, 0], [MARGIN, MARGIN], [MARGIN, MARGIN], [0, 0]])
    offsets = tf.cast(numbers[:, :2] * (2 * MARGIN + 1), tf.int32)
    rows = offsets[:, :1] + tf.range(size)
    columns = offsets[:, 1:] + tf.range(size)
    cropped = tf.gather(tf.gather(padded, rows, axis=1, batch_dims=1), columns, axis=2, batch_dims=1)
    mirrored = tf.reverse(cropped, [2])
    return tf.where((numbers[:, 2] < 0.5)[:, None, None, None], cropped, mirrored)
