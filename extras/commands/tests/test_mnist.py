"""Where the samples' digits come from, and what is refused."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from wml_ce_commands import mnist

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx(values: np.ndarray) -> bytes:
    """The idx format, as the page of MNIST describes it."""
    header = struct.pack(">BBBB", 0, 0, 8, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.astype(np.uint8).tobytes()


@pytest.fixture
def arrays() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.integers(0, 256, (n, 28, 28)) if images else random.integers(0, 10, n)
            for n, images in ((20, True), (20, False), (5, True), (5, False))]  # fmt: skip


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_files_of_the_original(tmp_path: Path, arrays: list[np.ndarray], suffix: str) -> None:
    for name, values in zip(NAMES, arrays, strict=True):
        data = idx(values)
        (tmp_path / f"{name}{suffix}").write_bytes(gzip.compress(data) if suffix else data)
    digits = mnist.load(tmp_path)
    assert digits.train_images.shape == (20, 28, 28, 1) and digits.train_images.dtype == np.float32
    assert digits.test_labels.dtype == np.int64
    for loaded, values in zip(digits[::2], arrays[::2], strict=True):
        np.testing.assert_allclose(loaded[..., 0], values / 255, rtol=1e-6)
    for loaded, values in zip(digits[1::2], arrays[1::2], strict=True):
        np.testing.assert_array_equal(loaded, values)


def test_digits_of_scikit_learn_without_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, labels = load_digits(return_X_y=True)
    for digits in (mnist.load(), mnist.load(tmp_path)):
        joined = np.concatenate([digits.train_images, digits.test_images])
        np.testing.assert_allclose(joined.reshape(1797, 64), images / 16)
        np.testing.assert_array_equal(np.concatenate([digits.train_labels, digits.test_labels]), labels)
    assert capsys.readouterr().err == (
        f"{tmp_path} has none of MNIST's files: training on scikit-learn's digits\n"
    )


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "absent", str(tmp_path / "file")):
        with pytest.raises(FileNotFoundError, match=f"no folder {folder}: .*--data_dir"):
            mnist.load(folder)


def test_some_of_the_files_are_missing(tmp_path: Path, arrays: list[np.ndarray]) -> None:
    (tmp_path / NAMES[0]).write_bytes(idx(arrays[0]))
    with pytest.raises(FileNotFoundError, match=f"{NAMES[1]}, {NAMES[2]}, {NAMES[3]}"):
        mnist.load(tmp_path)


@pytest.mark.parametrize("data", [b"", b"<html>", b"\0\0\x08\x03\0\0", idx(np.zeros((2, 3, 3)))[:-1]])
def test_damaged_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / NAMES[0]
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"{NAMES[0]}.*download it again"):
        mnist.read_idx(path)
