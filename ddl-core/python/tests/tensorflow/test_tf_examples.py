"""The examples learn, with one rank and with two, and only rank 0 writes."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rank_launcher import LIMIT, PREFIX
from sklearn.datasets import load_digits

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "tensorflow"


def start(
    example: str, ranks: int, *flags: str, launcher: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Starts an example as its first lines say, with options of the launcher's."""
    command = [str(PREFIX / "bin" / "python"), str(EXAMPLES / example), *flags]
    if ranks > 1:
        command = [str(PREFIX / "bin" / "ddlrun"), "-np", str(ranks), *launcher, *command]
    return subprocess.run(
        command,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "DDL_OPTIONS": "-timeout 60"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def run(example: str, ranks: int, *flags: str, launcher: Sequence[str] = ()) -> str:
    """The standard output of an example that succeeds."""
    finished = start(example, ranks, *flags, launcher=launcher)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def learned(output: str, ranks: int) -> bool:
    """Whether one rank has printed a good accuracy, and for how many."""
    lines = re.findall(r"^ranks (\d+)  test accuracy (?:0\.[89]|1\.0)", output, re.MULTILINE)
    return lines == [str(ranks)]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 2])
@pytest.mark.parametrize(
    ("example", "files"),
    [
        ("keras_digits.py", {"digits.keras", "digits.csv"}),
        pytest.param(
            "tf_keras_digits.py", {"digits.keras", "digits.csv", "servable"}, marks=pytest.mark.long
        ),
        ("tf1_digits.py", {"checkpoint", "servable", "model.ckpt-160.index"}),
    ],
)
def test_example(example: str, files: set[str], ranks: int, tmp_path: Path) -> None:
    """It says that it has learned, once; the files are there."""
    output = run(example, ranks, "--folder", str(tmp_path))
    assert re.findall(r"^ranks (\d+) ", output, re.MULTILINE) == [str(ranks)], output
    assert files <= {file.name for file in tmp_path.iterdir()}
    if (tmp_path / "digits.csv").exists():
        epochs = (tmp_path / "digits.csv").read_text().splitlines()
        assert len(epochs) == 1 + 6, epochs  # one writer, or there were more
    if "servable" in files:
        assert (tmp_path / "servable" / "1" / "saved_model.pb").stat().st_size > 1000


@pytest.mark.long
@pytest.mark.parametrize("example", ["keras_digits.py", "tf_keras_digits.py", "tf1_digits.py"])
def test_example_in_float16(example: str, tmp_path: Path) -> None:
    """With a scaled loss, on the processor."""
    output = run(example, 2, "--folder", str(tmp_path), "--device=cpu", "--use_fp16")
    assert learned(output, 2), output


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 2])
@pytest.mark.parametrize(
    ("example", "flags"),
    [
        ("mnist/mnist-env.py", ()),
        ("mnist/mnist-init.py", ()),
        ("eager/mnist-eager-env.py", ()),
        ("keras/mnist-tf-keras.py", ()),
        pytest.param("keras/mnist-tf-keras.py", ("--eager",), marks=pytest.mark.long),
        ("keras/mnist-tf-keras-adv.py", ()),
    ],
)
def test_sample_with_the_name_of_wml_ce(example: str, flags: tuple[str, ...], ranks: int) -> None:
    output = run(example, ranks, *flags)
    assert learned(output, ranks), output


@pytest.mark.slow
def test_files_of_a_long_training(tmp_path: Path) -> None:
    """One writer, and the backup of a training that has ended is gone."""
    output = run("keras/mnist-tf-keras-adv.py", 2, "--folder", str(tmp_path), "--epochs", "5")
    assert learned(output, 2), output
    assert len((tmp_path / "mnist.csv").read_text().splitlines()) == 1 + 5
    assert (tmp_path / "mnist.keras").is_file() and not list((tmp_path / "backup").glob("*.h5"))


@pytest.mark.slow
def test_data_of_the_original(tmp_path: Path) -> None:
    """Files of MNIST's format and size, drawn from other digits, as nothing is downloaded."""
    images, labels = load_digits(return_X_y=True)
    pictures = np.kron(images.reshape(-1, 8, 8), np.ones((3, 3))) * 255 / 16
    pictures = np.pad(pictures, ((0, 0), (2, 2), (2, 2)))
    for name, part in (("train", slice(0, 1500)), ("t10k", slice(1500, None))):
        for kind, values in (("images-idx3", pictures[part]), ("labels-idx1", labels[part])):
            header = struct.pack(f">4B{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
            (tmp_path / f"{name}-{kind}-ubyte").write_bytes(header + values.astype(np.uint8).tobytes())
    output = run("mnist/mnist-env.py", 2, "--data_dir", str(tmp_path))
    assert learned(output, 2), output
    (tmp_path / "empty").mkdir()
    accepted = start("mnist/mnist-env.py", 1, "--data_dir", str(tmp_path / "empty"))
    assert learned(accepted.stdout, 1), "a folder without any of the files is no reason to stop"
    assert f"{tmp_path}/empty has none of MNIST's files" in accepted.stderr
    refused = start("mnist/mnist-env.py", 1, "--data_dir", str(tmp_path / "absent"))
    assert refused.returncode == 1 and f"no folder {tmp_path}/absent" in refused.stderr
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    refused = start("mnist/mnist-env.py", 1, "--data_dir", str(tmp_path))
    assert refused.returncode == 1 and "t10k-labels-idx1-ubyte" in refused.stderr


@pytest.mark.slow
def test_options_of_the_script() -> None:
    """They count, not those of ddlrun: the right shape trains, a wrong one is refused."""
    launcher = ("--no_ddloptions",)
    output = run("mnist/mnist-init.py", 2, "--ddl_options=-mode b:2", launcher=launcher)
    assert "DDL with -mode b:2: 2 rank(s)" in output and learned(output, 2)
    refused = start("mnist/mnist-init.py", 2, "--ddl_options=-mode b:4x2", launcher=launcher)
    assert refused.returncode == 1 and "invalid dim size=2 usr_size=8" in refused.stderr


@pytest.mark.slow
def test_benchmark() -> None:
    small = [f"--num-{what}=1" for what in ("warmup-batches", "batches-per-iter", "iters")]
    output = run("benchmark/synthetic_benchmark.py", 2, "--model=MobileNetV2", "--batch-size=1", *small)
    assert re.search(r"^Iter #0: \d+\.\d img/sec per rank$", output, re.MULTILINE), output
    assert re.findall(r"^Total img/sec on (\d+) rank", output, re.MULTILINE) == ["2"], output
    refused = start("benchmark/synthetic_benchmark.py", 1, "--model=resnet50")
    assert refused.returncode == 1 and "no model of this name" in refused.stderr
