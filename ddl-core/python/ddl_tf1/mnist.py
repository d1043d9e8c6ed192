"""tensorflow.examples.tutorials.mnist.input_data: reads the digits from files that are there."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import numpy as np
from wml_ce_commands.mnist import read_idx

_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}

Datasets = collections.namedtuple("Datasets", ["train", "validation", "test"])


class DataSet:
    """Images and labels, in batches."""

    def __init__(self, images: Any, labels: Any, seed: int | None = None) -> None:
        """Takes arrays of the same length. seed: of the order of the batches."""
        if len(images) != len(labels):
            raise ValueError(f"{len(images)} images and {len(labels)} labels: give as many of each")
        self.images, self.labels = images, labels
        self.num_examples = len(images)
        self.epochs_completed = 0
        self._random = np.random.RandomState(seed)
        self._order = np.arange(self.num_examples)
        self._next = 0

    def next_batch(self, batch_size: int, fake_data: bool = False, shuffle: bool = True) -> tuple[Any, Any]:
        """Returns the next images and labels. A batch at the end of an epoch goes on into the next one."""
        if fake_data:
            raise ValueError("fake_data is not supported: pass your own arrays")
        if not self.num_examples:
            raise ValueError("the data set has no examples: change the validation_size of read_data_sets")
        if shuffle and self._next == 0 and self.epochs_completed == 0:
            self._random.shuffle(self._order)
        chosen: list[Any] = []
        remaining = batch_size
        while remaining > self.num_examples - self._next:
            chosen.append(self._order[self._next :])
            remaining -= len(chosen[-1])
            self.epochs_completed += 1
            self._next = 0
            self._order = self._order.copy()
            if shuffle:
                self._random.shuffle(self._order)
        chosen.append(self._order[self._next : self._next + remaining])
        self._next += remaining
        indices = np.concatenate(chosen)
        return self.images[indices], self.labels[indices]


def read_data_sets(
    train_dir: str,
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: Any = np.float32,
    reshape: bool = True,
    validation_size: int = 5000,
    seed: int | None = None,
    source_url: str | None = None,
) -> Any:
    """Reads MNIST from the folder train_dir; nothing is downloaded.

    Args:
        train_dir: Where the four files are, packed (.gz) or not.
        fake_data: Not supported.
        one_hot: Labels as rows with a single one.
        dtype: Of the images: float32, from 0 to 1, or uint8.
        reshape: Images as rows of 784 values, not 28x28x1.
        validation_size: How many of the training images are for validation.
        seed: Of the order of the batches.
        source_url: Ignored.

    Raises:
        FileNotFoundError: A file is not there.
        ValueError: A file is not what its name says.
    """
    if fake_data:
        raise ValueError("fake_data is not supported: pass your own arrays")
    folder = Path(train_dir)
    dtype = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    if dtype not in (np.dtype(np.float32), np.dtype(np.uint8)):
        raise ValueError(f"dtype {dtype} is neither float32 nor uint8")
    parts: dict[str, tuple[Any, Any]] = {}
    for part, (images_file, labels_file) in _FILES.items():
        images = _read(folder, images_file, 3)[..., np.newaxis]
        if reshape:
            images = images.reshape(len(images), -1)
        if dtype == np.float32:
            images = images.astype(np.float32) / np.float32(255)
        labels = _read(folder, labels_file, 1)
        parts[part] = images, np.eye(10)[labels] if one_hot else labels
    images, labels = parts["train"]
    if not 0 <= validation_size <= len(images):
        raise ValueError(f"validation_size is {validation_size}, of {len(images)} images")
    return Datasets(
        train=DataSet(images[validation_size:], labels[validation_size:], seed),
        validation=DataSet(images[:validation_size], labels[:validation_size], seed),
        test=DataSet(*parts["test"], seed),
    )


def _read(folder: Path, name: str, axes: int) -> Any:
    packed, plain = folder / f"{name}.gz", folder / name
    path = packed if packed.exists() else plain
    if not path.exists():
        raise FileNotFoundError(
            f"MNIST is not in {folder}: {name}.gz is missing, and TensorFlow 1 mode downloads nothing. Put "
            f"{', '.join(f'{each}.gz' for pair in _FILES.values() for each in pair)} there, or take the "
            "digits from sklearn.datasets.load_digits()"
        )
    values = read_idx(path)
    if values.ndim != axes:
        raise ValueError(f"{path} has arrays of {values.ndim} axes, where MNIST's have {axes}: copy it again")
    return values
