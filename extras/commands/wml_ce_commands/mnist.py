"""Handwritten digits for the samples: MNIST's files where there are some, else those of scikit-learn."""

from __future__ import annotations

import gzip
import os
import struct
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


class Digits(NamedTuple):
    """Images of one channel, (n, height, width, 1), float32 from 0 to 1, and what they show, int64."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def read_idx(path: Path) -> np.ndarray:
    """Reads an array of bytes from a file of the idx format, which may be compressed (.gz).

    Raises:
        ValueError: The file has another format, or not as many bytes as it says.
    """
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is not an idx file of bytes: download it again")
    dimensions = data[3]
    header = 4 + 4 * dimensions
    if len(data) < header:
        raise ValueError(f"{path} ends within its header: download it again")
    shape = struct.unpack(f">{dimensions}I", data[4:header])
    values = np.frombuffer(data, np.uint8, offset=header)
    if values.size != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path} has {values.size} values, not {shape}: download it again")
    return values.reshape(shape)


def load(folder: Path | str | None = None) -> Digits:
    """Loads the digits.

    Args:
        folder: Has MNIST's four idx files, as they are or compressed. Without it, or if it has none of them,
            the data are scikit-learn's 1797 digits of 8 by 8 pixels.

    Raises:
        FileNotFoundError: The folder does not exist, or has some of the four files only.
    """
    if folder and not Path(folder).is_dir():
        raise FileNotFoundError(
            f"there is no folder {folder}: name one with MNIST's files by --data_dir, or leave that out"
        )
    paths = [_path(Path(folder), name) for name in _FILES] if folder else []
    if not any(paths):
        # Once: WML CE's samples downloaded what the folder lacked.
        if folder and os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
            print(f"{folder} has none of MNIST's files: training on scikit-learn's digits", file=sys.stderr)
        return _scikit_learn()
    missing = [name for name, path in zip(_FILES, paths, strict=True) if path is None]
    if missing:
        raise FileNotFoundError(f"{folder} has no {', '.join(missing)} (or .gz): all four files are needed")
    arrays = [read_idx(path) for path in paths if path is not None]
    (train_images, test_images), (train_labels, test_labels) = arrays[::2], arrays[1::2]
    return Digits(
        *(_pixels(train_images, 255.0), train_labels.astype(np.int64)),
        *(_pixels(test_images, 255.0), test_labels.astype(np.int64)),
    )


def _path(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _pixels(values: np.ndarray, largest: float) -> np.ndarray:
    return (values / largest).astype(np.float32)[..., np.newaxis]


def _scikit_learn() -> Digits:
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        if error.name != "sklearn":
            raise
        raise ModuleNotFoundError(
            "no data: name a folder with MNIST's idx files by --data_dir, or install scikit-learn",
            name="sklearn",
        ) from None
    digits = load_digits()
    images, labels = _pixels(digits.images, 16.0), digits.target.astype(np.int64)
    return Digits(images[:1500], labels[:1500], images[1500:], labels[1500:])
